// Shows that the commands around training do what they say: models as text and from others' text,
// warm starts, online training, cross-validation, weights of classes, slices, reports, and the
// server: the same predictions, 400 for bad rows, an end without losses.
#include <gmock/gmock.h>
#include <httplib.h>
#include <signal.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>
#include <thread>
#include <vector>

#include "test/support/program_run.h"
#include "test/wide/motley_wide.h"
#include "test/wide/torment.h"
#include "wide/loss.h"
#include "wide/model.h"
#include "wide/model_text.h"
#include "wide/reader.h"
#include "wide/report.h"

namespace motley::wide {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::vector<double> numbers(const std::string& text) {
  std::istringstream in(text);
  std::vector<double> out;
  for (double x = 0; in >> x;) out.push_back(x);
  return out;
}

// A model's text, and the score that its formula gives a row {(field, id, value)}, in doubles.
class Formula {
 public:
  struct Entry {
    std::uint32_t field;
    std::uint32_t id;
    double value;
  };
  explicit Formula(const std::string& text) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string what;
      words >> what;
      if (what == "kind") words >> kind_;
      if (what == "k") words >> k_;
      if (what == "bias") words >> bias_;
      if (what == "normalisation") normalises_ = line.find("instance") != std::string::npos;
      if (what == "fields") {
        for (std::uint32_t f = 0; words >> f;) fields_.push_back(f);
      }
      std::uint32_t id = 0, other = 0;
      if (what == "pair") words >> id >> other >> pairs_[{id, other}];
      if (what == "feature") {
        words >> id;
        for (double x = 0; words >> x;) features_[id].push_back(x);
      }
    }
  }
  double score(std::vector<Entry> row) const {
    double squares = 0;
    for (const Entry& e : row) squares += e.value * e.value;
    double score = bias_;
    for (Entry& e : row) {
      if (normalises_ && squares > 0) e.value /= std::sqrt(squares);
      score += features_.at(e.id)[0] * e.value;
    }
    for (std::size_t i = 0; i < row.size() && kind_ != "lr"; ++i) {
      for (std::size_t j = 0; j < i; ++j) score += meet(row[i], row[j]);
    }
    return score;
  }

 private:
  double meet(const Entry& a, const Entry& b) const {
    const auto at = [&](std::uint32_t field) {
      if (kind_ != "ffm") return std::size_t{1};
      return 1 + k_ * static_cast<std::size_t>(std::find(fields_.begin(), fields_.end(), field) -
                                               fields_.begin());
    };
    double dot = 0;
    for (std::size_t d = 0; d < k_; ++d) {
      dot += features_.at(a.id)[at(b.field) + d] * features_.at(b.id)[at(a.field) + d];
    }
    if (kind_ == "fwfm") dot *= pairs_.at({std::min(a.field, b.field), std::max(a.field, b.field)});
    return dot * a.value * b.value;
  }

  std::string kind_;
  std::size_t k_ = 0;
  double bias_ = 0;
  bool normalises_ = false;
  std::vector<std::uint32_t> fields_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, double> pairs_;
  std::map<std::uint32_t, std::vector<double>> features_;
};

class Use : public MotleyWide {
 protected:
  void write_fields() const {
    std::string text;
    for (int i = 0; i < 300; ++i) {
      text += fmt::format("{} 0:{}:1 1:{}:0.5 5:{}:2\n", (i % 2 + i / 2 % 2) % 2, i % 2,
                          2 + i / 2 % 2, 4 + i % 3);
    }
    write("t.ffm", text);
  }
};

TEST_F(Use, TextOfAModelIsItsFormula) {
  write_fields();
  for (const char* kind : {"lr", "fm -k 5", "ffm -k 3", "fwfm -k 4", "fm --nonormalise -k 2"}) {
    ASSERT_EQ(run(fmt::format("train t.ffm -q -e 5 -o m -m {}", kind)).code, 0) << kind;
    ASSERT_EQ(run("convert m -o m.txt").code, 0) << kind;
    ASSERT_EQ(run("convert m.txt -o again").code, 0) << kind;
    const Dataset data = read_file(path("t.ffm"));
    const std::vector<float> scores =
        Model::load(path("m")).scores(Model::load(path("m")).prepare(read_file(path("t.ffm"))));
    const Formula formula(read("m.txt"));
    for (std::size_t r = 0; r < 12; ++r) {
      std::vector<Formula::Entry> row;
      for (auto e = data.row_begin[r]; e < data.row_begin[r + 1]; ++e) {
        row.push_back({data.fields[e], data.ids[e], data.values[e]});
      }
      EXPECT_NEAR(formula.score(row), scores[r], 1e-6 * std::max(1.0f, std::abs(scores[r])))
          << kind;
    }
    EXPECT_EQ(run("predict again t.ffm").out, run("predict m t.ffm").out) << kind;
    EXPECT_THAT(run("predict m.txt t.ffm").err, HasSubstr("convert"));
  }
}

TEST_F(Use, ReadsTextOfOthers) {
  write("row.ffm", "1 0:0:3 1:1:4\n");
  write("libffm.txt",
        "n 2\nm 2\nk 2\nnormalization 1\nw0,0 9 9 \nw0,1 1 2 \nw1,0 3 4 \nw1,1 9 9 \n");
  ASSERT_EQ(run("convert libffm.txt -o m").code, 0);
  const auto probability = [](double score) { return 1 / (1 + std::exp(-score)); };
  EXPECT_NEAR(numbers(run("predict m row.ffm").out).at(0), probability(11 * 0.6 * 0.8), 1e-6);

  write("ffm.txt", "bias: 0.5\ni_0: 1\ni_1: -1\nv_0_0: 9 9\nv_0_1: 1 2\nv_1_0: 3 4\nv_1_1: 9 9\n");
  ASSERT_EQ(run("convert ffm.txt -o m").code, 0);
  EXPECT_NEAR(numbers(run("predict m row.ffm").out).at(0), probability(0.5 + 0.6 - 0.8 + 11 * 0.48),
              1e-6);
  ASSERT_EQ(run("convert ffm.txt --nonormalise -o m").code, 0);
  write("small.ffm", "1 0:0:0.3 1:1:0.4\n");
  EXPECT_NEAR(numbers(run("predict m small.ffm").out).at(0), probability(0.4 + 11 * 0.12), 1e-6);

  write("fm.txt", "bias: 0.5\ni_0: 1\ni_1: -1\nv_0: 1 2\nv_1: 3 4\n");
  EXPECT_THAT(run("convert fm.txt -o m").err, HasSubstr("--nonormalise"));
  ASSERT_EQ(run("convert fm.txt --nonormalise -o m").code, 0);
  write("row.svm", "1 0:0.3 1:0.4\n");
  EXPECT_NEAR(numbers(run("predict m row.svm").out).at(0), probability(0.4 + 11 * 0.12), 1e-6);
  write("lr.txt", "bias: 0.5\ni_0: 1\n");
  ASSERT_EQ(run("convert lr.txt -o m").code, 0);
  EXPECT_NEAR(numbers(run("predict m row.svm").out).at(0), probability(0.8), 1e-6);

  for (const char* text :
       {"n 2\nm 2\nk 2\nnormalization 1\nw0,0 9 9\n", "bias: x\n", "i_0: 1\nv_0: 1\nv_2: 1\n",
        "n 2\nm 1\nk 999\nnormalization 1\nw0,0 9\n", "motley-wide-text 1\nfeature 1\n",
        "motley-wide-text 1\nkind fm\nk 2\nfeature 1 2 3\n",
        "motley-wide-text 1\nkind lr\nfeature 1 2\nfeature 1 2\n"}) {
    write("bad.txt", text);
    EXPECT_EQ(run("convert bad.txt -o m").code, 1) << text;
  }
}

TEST_F(Use, GoesOnFromAModelWhichGrows) {
  write_fields();
  write("more.ffm", "1 0:77:1 3:78:1\n0 0:0:1 9:79:1\n");
  for (const char* kind : {"lr", "fm", "ffm", "fwfm"}) {
    ASSERT_EQ(run(fmt::format("train t.ffm -q -e 5 -o old -m {}", kind)).code, 0);
    ASSERT_EQ(run("train more.ffm -q -e 1 -r 1e-30 --l2 0 --l2_factors 0 -i old -o new").code, 0);
    const Model grown = Model::load(path("new"));
    EXPECT_EQ(grown.layout().slots, Model::load(path("old")).layout().slots + 3) << kind;
    // Nothing was learnt, so nothing that was known has changed.
    EXPECT_EQ(run("predict new t.ffm").out, run("predict old t.ffm").out) << kind;
    ASSERT_EQ(run("train more.ffm -q -e 30 -i old -o new").code, 0);
    EXPECT_GT(numbers(run("predict new more.ffm").out)[0], 0.6) << kind;
  }
  EXPECT_THAT(run("train more.ffm -m lr -i old").err, HasSubstr("fwfm"));
  EXPECT_THAT(run("train t.ffm --bits 8 -i old").err, HasSubstr("read as"));
}

TEST_F(Use, LearnsOnlineFromAStream) {
  write_fields();
  const Outcome o = run("train - <t.ffm --online --online_rows 100 -m fm -o m");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("progressive loss"));
  EXPECT_EQ(numbers(run("predict m t.ffm").out).size(), 300u);
}

TEST_F(Use, CrossValidatesAndHoldsOut) {
  write_fields();
  const Outcome o = run("train t.ffm -m fm --folds 3 -e 30");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, AllOf(HasSubstr("fold  3"), HasSubstr("mean of 3 folds")));
  EXPECT_FALSE(std::filesystem::exists(path("t.ffm.model")));
  EXPECT_THAT(run("train t.ffm -m fm --holdout 0.2 -o m").out, HasSubstr("validation log loss"));
  EXPECT_EQ(run("train t.ffm t.ffm --folds 3").code, 2);
}

// A tenth of the rows is positive. Fewer negatives, and predictions that are right all the same.
TEST_F(Use, CalibratesWhatIsDownSampled) {
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += fmt::format("{} {}:1\n", i % 10 == 0 ? 1 : 0, i % 7);
  write("t", text);
  ASSERT_EQ(run("train t -m lr -q --negative_rate 0.2 -o m").code, 0);
  const auto mean = [&] {
    const std::vector<double> p = numbers(run("predict m t").out);
    return std::accumulate(p.begin(), p.end(), 0.0) / static_cast<double>(p.size());
  };
  EXPECT_NEAR(mean(), 0.1, 0.02);
  ASSERT_EQ(run("train t -m lr -q --positive_weight 9 -o m").code, 0);
  EXPECT_NEAR(mean(), 0.5, 0.05);
}

TEST_F(Use, ReportsSlicesAndAPage) {
  std::string text = "click,site,n\n";
  for (int i = 0; i < 200; ++i)
    text += fmt::format("{},{},{}\n", i % 4 == 0 ? 1 : 0, i % 2 ? "<x>" : "y", i);
  write("t.csv", text);
  ASSERT_EQ(run("train t.csv t.csv -q -m lr --schema n:log -o m --report train.html").code, 0);
  const Outcome o = run("eval m t.csv --by site --report eval.html");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, AllOf(HasSubstr("site=y: 100 rows"), HasSubstr("calibration"),
                           HasSubstr("normalised entropy"), HasSubstr("recall")));
  for (const char* page : {"train.html", "eval.html"}) {
    const std::string html = read(page);
    EXPECT_THAT(html, AllOf(HasSubstr("site=&lt;x&gt;"), HasSubstr("ROC"), HasSubstr("</html>")));
    EXPECT_THAT(html, AllOf(Not(HasSubstr("http")), Not(HasSubstr("<script"))));
  }
  EXPECT_THAT(read("train.html"), HasSubstr("Loss by epoch"));
  EXPECT_THAT(run("eval m t.csv --by color").err, HasSubstr("n, site"));
  EXPECT_THAT(run("inspect m t.csv").out, AllOf(HasSubstr("site=y"), HasSubstr("lr")));
  EXPECT_THAT(run("inspect t.csv").out, HasSubstr("200 rows"));
}

// Twenty runs; wide_torment does it for longer.
TEST_F(Use, LeavesNoBrokenFileWhateverHappens) {
  const TormentResult result =
      torment({.program = MOTLEY_WIDE, .folder = path("torment"), .seed = 3, .rounds = 20});
  EXPECT_EQ(result.broken, "") << "in run " << result.rounds;
  EXPECT_EQ(result.rounds, 20);
}

TEST(Report, DrawsCurvesAsFiguresHaveThem) {
  const std::vector<float> scores{-2, -1, -1, 0, 3};
  const std::vector<float> labels{0, 0, 1, 0, 1};
  const std::vector<Point> curve = roc(scores, labels, 100);
  double area = 0;  // of the curve is the AUC, ties and all
  for (std::size_t i = 1; i < curve.size(); ++i) {
    area += (curve[i].x - curve[i - 1].x) * (curve[i].y + curve[i - 1].y) / 2;
  }
  EXPECT_NEAR(area, *auc(scores, labels), 1e-12);
  const std::vector<Point> bins = calibration(scores, labels, 2);
  ASSERT_EQ(bins.size(), 2u);
  EXPECT_NEAR(bins[0].y, 0, 1e-12);
  EXPECT_NEAR(bins[1].y, 2.0 / 3, 1e-12);
}

TEST(Report, FiguresAreThoseOfTheirDefinitions) {
  const std::vector<float> scores{2, -1, 1, -3};
  const std::vector<float> labels{1, 1, 0, 0};
  const Evaluation e = evaluate(scores, labels);
  EXPECT_NEAR(*e.normalised_entropy, e.log_loss / std::log(2.0), 1e-12);
  EXPECT_EQ(*e.precision, 0.5);
  EXPECT_EQ(*e.recall, 0.5);
  double sum = 0;
  for (const float score : scores) sum += LogisticLoss::probability(static_cast<double>(score));
  EXPECT_NEAR(*e.calibration, sum / 2, 1e-6);
  const Evaluation none = evaluate({scores.data() + 1, 1}, {labels.data() + 2, 1});
  EXPECT_FALSE(none.precision || none.recall || none.calibration || none.normalised_entropy);
}

std::vector<double> predictions(const httplib::Result& result) {
  if (!result) throw std::runtime_error("no answer: " + httplib::to_string(result.error()));
  EXPECT_EQ(result->status, 200) << result->body;
  return nlohmann::json::parse(result->body).at("predictions").get<std::vector<double>>();
}

std::vector<std::string> serve_arguments(const std::string& model) {
  return {MOTLEY_WIDE, "serve", model, "--port", "0", "--deadline_ms", "60000"};
}

TEST_F(Use, ServesWhatPredictPrints) {
  write_fields();
  ASSERT_EQ(run("train t.ffm -q -m ffm -o m").code, 0);
  const std::vector<double> expected = numbers(run("predict m t.ffm").out);
  ProgramRun program(serve_arguments(path("m")));
  const std::string url = program.await("listening at ");
  const std::string rows = read("t.ffm");
  std::vector<std::thread> clients;
  std::vector<std::vector<double>> answers(4);
  for (auto& answer : answers) {
    clients.emplace_back([&] {
      httplib::Client client(url);
      client.set_read_timeout(60);
      for (int i = 0; i < 10; ++i)
        answer = predictions(client.Post("/predict", rows, "text/plain"));
    });
  }
  for (std::thread& client : clients) client.join();
  for (const auto& answer : answers) {
    ASSERT_EQ(answer.size(), expected.size());
    for (std::size_t i = 0; i < answer.size(); ++i) {
      EXPECT_EQ(static_cast<float>(answer[i]), static_cast<float>(expected[i])) << i;
    }
  }
  httplib::Client client(url);
  const auto one =
      client.Post("/predict", R"({"rows": ["0:0:1 1:2:0.5 5:4:2"]})", "application/json");
  EXPECT_EQ(static_cast<float>(predictions(one).at(0)), static_cast<float>(expected[0]));
  for (const char* bad : {"0:0:x", "", "1 2 3", "\x1f\x8b", "0:0:1 0:0:1"}) {
    const auto answer = client.Post("/predict", bad, "text/plain");
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->status, 400) << bad;
    EXPECT_THAT(answer->body, HasSubstr("error"));
  }
  for (const char* bad : {"{", "{}", "[]", R"({"rows":[]})", R"({"rows":[1]})", R"({"rows":3})"}) {
    EXPECT_EQ(client.Post("/predict", bad, "application/json")->status, 400) << bad;
  }
  EXPECT_EQ(client.Get("/health")->status, 200);
  EXPECT_THAT(client.Get("/metrics")->body, HasSubstr("motley_wide_requests_total 52"));
  EXPECT_EQ(client.Get("/nowhere")->status, 404);
  program.signal(SIGTERM);
  const auto result = program.wait();
  EXPECT_EQ(result.code, 0) << result.error;
  EXPECT_THAT(result.out, HasSubstr("stopped"));
}

TEST_F(Use, ServesColumnsByName) {
  std::string text = "click,site,price\n";
  for (int i = 0; i < 100; ++i)
    text += fmt::format("{},{},{}\n", i % 2, i % 2 ? "a,b" : "y", i % 5);
  for (std::size_t at = 0; (at = text.find("a,b", at)) != std::string::npos; at += 5) {
    text.replace(at, 3, "\"a,b\"");
  }
  write("t.csv", text);
  ASSERT_EQ(run("train t.csv -q -m lr --schema price:log -o m").code, 0);
  std::vector<std::string> arguments = serve_arguments(path("m"));
  arguments.insert(arguments.end(), {"--waiting_rows", "3"});
  ProgramRun program(arguments);
  httplib::Client client(program.await("listening at "));
  const auto many = client.Post("/predict", "price,site\n3,y\n4,y\n5,y\n6,y\n", "text/csv");
  EXPECT_EQ(many->status, 503);
  EXPECT_THAT(many->body, HasSubstr("limit 3"));
  const auto json = predictions(client.Post(
      "/predict", R"({"rows": [{"site": "a,b", "price": 3}, {"price": 4, "site": "y"}, {}]})",
      "application/json"));
  const auto csv = predictions(client.Post("/predict", "price,site\n3,\"a,b\"\n4,y\n", "text/csv"));
  ASSERT_EQ(json.size(), 3u);
  EXPECT_EQ(json[0], csv[0]);
  EXPECT_EQ(json[1], csv[1]);
  EXPECT_GT(json[0], 0.8);
  EXPECT_LT(json[1], 0.2);
  const auto bad = client.Post("/predict", R"({"rows": [{"price": "dear"}]})", "application/json");
  EXPECT_EQ(bad->status, 400);
  EXPECT_THAT(bad->body, HasSubstr("dear"));
  const auto misspelt =
      client.Post("/predict", R"({"rows": [{"site": "y"}, {"sit": "y"}]})", "application/json");
  EXPECT_EQ(misspelt->status, 400);
  EXPECT_THAT(misspelt->body, AllOf(HasSubstr("sit\\\""), HasSubstr("it has price, site.")));
  program.signal(SIGINT);
  EXPECT_EQ(program.wait().code, 0);
}

}  // namespace
}  // namespace motley::wide
