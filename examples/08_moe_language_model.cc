// A language model of characters whose layers are mixtures of experts learns this project's own
// documentation, or any text. The experts are divided among the workers; any number that divides 8
// gives the same losses.
//
//   08_moe_language_model -steps 200 README.md comm/README.md          one worker
//   motley-run -n 4 -- 08_moe_language_model -steps 200 README.md      four
//   … -steps 400 -folder run README.md       saves in run/, and goes on from what is saved there
//   … -trace routes README.md                which expert each character went to
#include <gflags/gflags.h>

#include <cstdio>
#include <exception>
#include <optional>

#include "comm/communicator.h"
#include "moe/language_model.h"
#include "moe/trace.h"
#include "runtime/checkpoint.h"

DEFINE_int32(steps, 200, "steps to train");
DEFINE_string(folder, "", "where checkpoints are saved and looked for; empty: nowhere");
DEFINE_string(trace, "", "file for the experts that the gates chose; empty: none");

using namespace motley;
using namespace motley::moe;

namespace {

void train(Communicator& comm, const CharacterText& text) {
  const LanguageModelOptions options{.vocabulary = text.vocabulary()};
  LanguageModel model(comm, options);
  const runtime::State state = model.state();
  std::optional<runtime::Checkpointer> checkpoints;
  if (!FLAGS_folder.empty()) checkpoints.emplace(FLAGS_folder, comm);
  if (checkpoints) checkpoints->load(state);
  std::optional<TraceWriter> trace;
  if (!FLAGS_trace.empty() && comm.rank() == 0) {
    trace.emplace(FLAGS_trace, TraceHeader{options.experts, options.layers, options.top_k});
  }
  for (std::int64_t step = model.steps(); step < FLAGS_steps; ++step) {
    const LanguageModel::Report report = model.step(text.batch(options, step));
    if (comm.rank() == 0 && (step % 20 == 0 || step + 1 == FLAGS_steps)) {
      std::printf("step %4ld: loss %.4f\n", static_cast<long>(step), report.loss);
    }
    for (int layer = 0; layer < options.layers && !FLAGS_trace.empty(); ++layer) {
      const auto experts = gathered(comm, model.routing(layer));
      if (trace) trace->write({step, layer, experts});
    }
  }
  if (trace) trace->close();
  if (checkpoints) {
    checkpoints->save(state, model.steps());
    checkpoints->wait();
  }
  const auto unseen = text.test_batch(options, 0);
  const double loss = model.evaluate(unseen).loss;
  if (comm.rank() != 0) return;
  std::printf("%d workers: unseen text costs %.4f nats a character; counts of pairs %.4f\n",
              comm.size(), loss, text.bigram_loss(unseen, options.length));
}

}  // namespace

int main(int argc, char** argv) {
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  try {
    Communicator comm = Communicator::join(Options::from_environment());
    const std::string root = MOTLEY_DOCUMENTATION;
    std::vector<std::string> paths(argv + 1, argv + argc);
    for (const char* part : {"", "/comm", "/runtime", "/moe", "/wide"}) {
      if (argc == 1) paths.push_back(root + part + "/README.md");
    }
    train(comm, read_characters(paths));
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
