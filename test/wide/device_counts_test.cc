// What the kernels of wide move, per sample, counted in the emulator: sectors of 32 bytes of global
// memory, conflicts of shared memory, atomics; of the flow and of the classical stages, beside the
// least that could be. Prints the table of wide/README.md.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>
#include <string>
#include <vector>

#include "test/bench/wide_gpu/resident_batch.h"
#include "test/support/simt/check.h"
#include "test/wide/skewed_rows.h"

namespace motley::wide {
namespace {

constexpr double kSector = 32;

struct Case {
  const char* name;
  ModelKind kind;
  int factors;
  std::size_t rows = 2048;
};

// What a batch asks for, whoever learns it.
struct Needs {
  double rows = 0, edges = 0;  // edges of a row
  double input = 0;            // bytes of a row as the flow reads it
  double row_sectors = 0;      // in which a row's linear weights lie
  double slots = 0;            // of the batch
  double slot_sectors = 0;     // in which their linear weights lie
  double cold = 0;             // edges of a row whose slots are not hot
  double hot = 0;              // hot slots of the batch
  double hot_sectors = 0;      // in which their linear weights lie
};

Needs needs_of(const Samples& s, const Layout& layout, std::uint32_t hot) {
  Needs n{.rows = static_cast<double>(s.rows())};
  std::set<std::uint32_t> slots, sectors, hot_sectors;
  std::size_t of_rows = 0, cold = 0;
  for (std::size_t r = 0; r < s.rows(); ++r) {
    std::set<std::size_t> of_row;
    for (std::uint64_t e = s.row_begin[r]; e < s.row_begin[r + 1]; ++e) {
      const std::uint32_t slot = s.slots[e];
      const auto sector = static_cast<std::uint32_t>(layout.linear(slot) * sizeof(float) / 32);
      of_row.insert(sector);
      slots.insert(slot);
      sectors.insert(sector);
      if (slot < hot) hot_sectors.insert(sector);
      cold += slot >= hot ? 1 : 0;
    }
    of_rows += of_row.size();
  }
  n.edges = static_cast<double>(s.edges()) / n.rows;
  n.input = n.edges * (layout.fields > 0 ? 6 : 4) + 12;
  n.row_sectors = static_cast<double>(of_rows) / n.rows;
  n.slots = static_cast<double>(slots.size());
  n.slot_sectors = static_cast<double>(sectors.size());
  n.cold = static_cast<double>(cold) / n.rows;
  n.hot = static_cast<double>(std::distance(slots.begin(), slots.lower_bound(hot)));
  n.hot_sectors = static_cast<double>(hot_sectors.size());
  return n;
}

// A row's sectors by the formula of three_stage.h.
double stages_by_formula(const Needs& n, const Layout& layout) {
  const bool fields = layout.fields > 0;
  const auto q = static_cast<double>(fields ? layout.fields : layout.width / 4);
  const double m = n.edges, u = n.slots / n.rows, slices = std::ceil(q / 32);
  const double linear = 32 * n.row_sectors + 64 * n.slot_sectors / n.rows;
  const double loss = 4 + 4 + 4 + 8 + 8;
  const double product = m * (4 + 16 * q) + 16 + (fields ? m * slices * 32 + 16 * q * q : 16 * q);
  const double transposed = m * ((fields ? 96 * (slices + 1) : 36) + 16 * q) + u * (16 + 32 * q);
  const double update = u * ((fields ? 96 * slices : 16) + 5 * 16 * q);
  return (product + linear + loss + transposed + update) / kSector;
}

// The least sectors of a row for who keeps the hot slots on the chip and learns others row by row:
// the row is read once, a cold edge's numbers are read and written once, as are those of hot slots
// in each tile, and what all samples share.
double least(const Needs& n, const Layout& layout, double tiles) {
  const double numbers = std::ceil(static_cast<double>(layout.factors_stride()) * 4 / kSector);
  const double cold = n.cold * 2 * (numbers + 1);
  const double hot = tiles / n.rows * 2 * (n.hot * numbers + n.hot_sectors);
  const double pairs = std::ceil(static_cast<double>(layout.pairs) * 4 / kSector);
  const double shared = tiles / n.rows * 2 * pairs * static_cast<double>(layout.planes);
  return n.input / kSector + cold + hot + shared;
}

// Were the numbers of all edges read and written once, in bytes that lie side by side.
double all_edges(const Needs& n, const Layout& layout) {
  const double numbers = static_cast<double>(layout.factors_stride() + layout.linear_stride());
  return (n.input + n.edges * 2 * 4 * numbers) / kSector;
}

// Blocks share the model: that is what makes the flow asynchronous. All else is a fault.
MATCHER(IsOfTheSharedModel, "") {
  return arg.kind == simt::FaultKind::kRace && arg.what.find("global memory") != std::string::npos;
}

class DeviceCounts : public testing::TestWithParam<Case> {
 protected:
  static void SetUpTestSuite() {
    std::puts(
        "| | hot slots | hot share | read | written | by atomics | conflicts | atomics | flow | "
        "stages | ratio | least | all edges |");
  }
};
INSTANTIATE_TEST_SUITE_P(Kinds, DeviceCounts,
                         testing::Values(Case{"lr", ModelKind::kLogistic, 1},
                                         Case{"fm8", ModelKind::kFm, 8},
                                         Case{"fm16", ModelKind::kFm, 16},
                                         Case{"ffm4", ModelKind::kFfm, 4, 512},
                                         Case{"fwfm8", ModelKind::kFwfm, 8, 512}),
                         [](const auto& i) { return i.param.name; });

// Rows about as skewed as Criteo's: the first 64 slots have .51 of the entries, 1,000 have .80.
Dataset rows_for(const Case& c) {
  return test::skewed_rows(
      {.rows = c.rows, .fields = 39, .features = 8, .growth = 1.15, .skew = 6});
}

TEST_P(DeviceCounts, OfTheFlowAreAThirdOfTheStagesOrTheLeast) {
  const Case& c = GetParam();
  const Dataset data = rows_for(c);
  const Model model = Model::of({.kind = c.kind, .factors = c.factors}, data);
  const Samples samples = model.prepare(data);
  ResidentBatch batch(model, samples);
  const FlowShape shape = flow_shape(batch.job(), batch.arrays().rows);
  const simt::Report flow = simt::checked([&] { batch.flow(shape); });
  EXPECT_THAT(flow.faults, testing::Each(IsOfTheSharedModel())) << flow.text();
  batch.reset();
  const bool has_stages = c.kind != ModelKind::kFwfm;
  const simt::Report stages = simt::checked([&] {
    if (has_stages) batch.in_stages();
  });
  EXPECT_THAT(stages.faults, testing::IsEmpty()) << stages.text();

  const Layout& layout = model.layout();
  const Needs n = needs_of(samples, layout, shape.hot);
  const simt::KernelReport f = flow.total();
  const auto of_row = [&](std::uint64_t x) { return static_cast<double>(x) / n.rows; };
  const double moved = of_row(f.global().sectors);
  const double classical = of_row(stages.total().global().sectors);
  const double floor = least(n, layout, std::ceil(n.rows / shape.tile_rows));
  const std::string beside =
      has_stages ? fmt::format("{:.1f} | {:.3f}", classical, moved / classical) : "- | -";
  std::printf("| `%s` | %u | %.3f | %.1f | %.1f | %.1f | %.1f | %.0f | %.1f | %s | %.1f | %.1f |\n",
              c.name, shape.hot, 1 - n.cold / n.edges, of_row(f.reads.sectors),
              of_row(f.writes.sectors), of_row(f.atomics.sectors), of_row(f.bank_conflicts),
              of_row(f.atomic_operations), moved, beside.c_str(), floor, all_edges(n, layout));
  if (has_stages) {
    EXPECT_NEAR(classical, stages_by_formula(n, layout), 0.1 * classical);
  }
  EXPECT_GE(moved, 0.9 * floor) << flow.text();  // else something was not seen
  // What an FwFM's samples share is taken and stepped with the hottest slots.
  EXPECT_LE(moved, std::max(classical / 3, (has_stages ? 1 : 1.5) * floor)) << flow.text();
}

// Owners of hot slots add up what atomics would; for that they read slot, place and rows of each
// segment of a window, most of which are short: more sectors for fewer atomics.
TEST_P(DeviceCounts, OfTheFlowByFeatureHaveFewAtomics) {
  const Case& c = GetParam();
  if (has_fields(c.kind)) GTEST_SKIP() << "the tiles of a window's rows do not fit";
  const Dataset data = rows_for(c);
  const Model model = Model::of({.kind = c.kind, .factors = c.factors}, data);
  const Samples samples = model.prepare(data);
  ResidentBatch by_sample(model, samples);
  const std::uint32_t rows = by_sample.arrays().rows;
  const FlowShape plain = flow_shape(by_sample.job(), rows);
  const FlowShape shape = flow_shape(by_sample.job(), rows, 0, true);
  ResidentBatch batch(model, samples, {.rows = shape.step_rows, .hot = shape.hot});
  const simt::Report report = simt::checked([&] { batch.flow(shape); });
  EXPECT_THAT(report.faults, testing::Each(IsOfTheSharedModel())) << report.text();
  const simt::Report before = simt::checked([&] { by_sample.flow(plain); });
  const simt::Report stages = simt::checked([&] { by_sample.in_stages(); });
  const simt::KernelReport f = report.total(), p = before.total();
  const auto of_row = [&](std::uint64_t x) {
    return static_cast<double>(x) / static_cast<double>(c.rows);
  };
  const double sectors = of_row(f.global().sectors);
  const double classical = of_row(stages.total().global().sectors);
  std::printf(
      "%s by feature: %u hot slots; %.1f sectors (%.1f by sample, %.3f of the stages), %.0f "
      "atomics "
      "(%.0f), %.1f conflicts (%.1f)\n",
      c.name, shape.hot, sectors, of_row(p.global().sectors), sectors / classical,
      of_row(f.atomic_operations), of_row(p.atomic_operations), of_row(f.bank_conflicts),
      of_row(p.bank_conflicts));
  EXPECT_LT(f.atomic_operations, p.atomic_operations / 7);
  EXPECT_LE(sectors, 0.55 * classical) << report.text();
}

}  // namespace
}  // namespace motley::wide
