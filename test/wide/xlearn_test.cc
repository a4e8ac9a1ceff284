// Shows that models that xLearn 0.40 wrote as text predict here what they predict there: `rows`,
// trained for five epochs with k = 4, and its predictions of them.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "wide/loss.h"
#include "wide/model.h"
#include "wide/model_text.h"
#include "wide/reader.h"

namespace motley::wide {
namespace {

constexpr const char* kRows = R"(1 0:0:1 1:2:0.5 2:4:2
0 0:1:1 1:3:0.5 2:5:2
1 0:0:1 1:3:0.5 2:4:2
0 0:1:1 1:2:0.5 2:4:2
1 0:0:1 1:2:0.5 2:5:2
0 0:1:1 1:3:0.5 2:4:2
)";

constexpr const char* kLinear = R"(bias: -0.000827995
i_0: 0.808923
i_1: -0.799812
i_2: 0.169962
i_3: -0.168783
i_4: 0.00920992
i_5: 0.0216937
)";

constexpr const char* kFactors = R"(bias: -0.119117
i_0: 0.594939
i_1: -0.673357
i_2: 0.08307
i_3: -0.17608
i_4: -0.0403101
i_5: -0.0977705
v_0: 0.358581 0.294812 0.737165 0.38967
v_1: -0.294119 -0.231547 -0.590903 -0.115333
v_2: 0.278484 0.400176 0.291356 0.277395
v_3: 0.234706 -0.0453022 0.0195003 0.0744433
v_4: 0.376695 0.196273 0.734657 0.162319
v_5: 0.203716 0.391245 0.528311 0.364602
)";  // without normalisation

constexpr const char* kFieldAware = R"(bias: -0.040634
i_0: 0.529363
i_1: -0.55275
i_2: 0.09051
i_3: -0.107345
i_4: -0.011997
i_5: -0.0192797
v_0_0: 2.58255e-06 0.0434075 0.24935 0.151355
v_0_1: 0.209686 0.099087 0.0324182 0.249344
v_0_2: 0.316768 0.395626 0.244135 0.236476
v_1_0: 0.274219 0.0114088 0.0176423 0.174801
v_1_1: 0.188967 -0.0294191 0.0949322 -0.000346469
v_1_2: 0.0357706 0.128365 0.0663832 0.233506
v_2_0: 0.286407 0.181985 0.0272862 0.235994
v_2_1: 0.13728 0.231393 0.300406 0.251525
v_2_2: 0.114135 0.0294372 0.249455 0.109617
v_3_0: 0.197957 0.254485 0.317513 0.12996
v_3_1: 0.0815228 0.324242 0.238478 0.248607
v_3_2: 0.184372 0.00833085 0.198982 0.288919
v_4_0: 0.149844 0.197562 0.265833 0.127263
v_4_1: 0.0764617 0.0901612 0.11554 0.0525219
v_4_2: 0.160551 0.296227 0.300039 0.0199862
v_5_0: 0.327185 0.193505 0.17756 0.0909929
v_5_1: 0.31541 0.163241 0.090513 0.0126155
v_5_2: 0.312762 0.0243372 0.165233 0.126767
)";

void expect_predictions(const char* text, Normalisation normalisation,
                        const std::vector<float>& expected) {
  const std::string path = testing::TempDir() + "motley_xlearn_" + std::to_string(getpid());
  std::ofstream(path) << text;
  const Model model = load_text(path, normalisation);
  std::remove(path.c_str());
  const std::vector<float> scores = model.scores(model.prepare(parse_text(kRows, "rows")));
  ASSERT_EQ(scores.size(), expected.size());
  for (std::size_t i = 0; i < scores.size(); ++i) {
    // Both texts are rounded to six digits.
    EXPECT_NEAR(prediction_of(model.options().loss, scores[i]), expected[i], 3e-6) << "row " << i;
  }
}

TEST(XLearn, LinearModelsPredictTheSame) {
  expect_predictions(kLinear, Normalisation::kInstance,
                     {0.713306f, 0.301189f, 0.67746f, 0.332425f, 0.718385f, 0.29596f});
}
TEST(XLearn, FactorizationMachinesPredictTheSame) {
  expect_predictions(kFactors, Normalisation::kNone,
                     {0.939637f, 0.113314f, 0.887524f, 0.142272f, 0.924168f, 0.107871f});
}
TEST(XLearn, FieldAwareMachinesPredictTheSame) {
  expect_predictions(kFieldAware, Normalisation::kInstance,
                     {0.575812f, 0.431816f, 0.564899f, 0.442947f, 0.577408f, 0.432855f});
}

}  // namespace
}  // namespace motley::wide
