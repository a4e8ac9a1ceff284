// Who a process is, as what schedulers leave in its environment says.
#include "comm/bootstrap/identity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "comm/options.h"
#include "test/support/errors.h"

namespace motley {
namespace {

using testing::HasSubstr;

// An environment of these variables and no others.
Environment variables(const std::map<std::string, std::string>& all) {
  return [all](const char* name) {
    const auto found = all.find(name);
    return found == all.end() ? nullptr : found->second.c_str();
  };
}

void expect_refused(const std::map<std::string, std::string>& all,
                    const std::vector<std::string>& facts) {
  test::expect_error(ErrorCode::kInvalid, facts,
                     [&] { return Options::from_environment(variables(all)); });
}

const std::map<std::string, std::string> kTorchrun = {{"RANK", "3"},
                                                      {"WORLD_SIZE", "4"},
                                                      {"LOCAL_RANK", "1"},
                                                      {"MASTER_ADDR", "node-a"},
                                                      {"MASTER_PORT", "29500"},
                                                      {"TORCHELASTIC_RUN_ID", "run7"},
                                                      {"TORCHELASTIC_RESTART_COUNT", "0"}};
const std::map<std::string, std::string> kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                                                     {"OMPI_COMM_WORLD_SIZE", "2"},
                                                     {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                                     {"PMIX_NAMESPACE", "815333377"},
                                                     {"TMPDIR", "/scratch"}};
const std::map<std::string, std::string> kPmi = {
    {"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MPI_LOCALNRANKS", "2"}};
const std::map<std::string, std::string> kSlurm = {{"SLURM_PROCID", "5"},
                                                   {"SLURM_STEP_NUM_TASKS", "8"},
                                                   {"SLURM_STEP_NODELIST", "gpu[07-09,12]"},
                                                   {"SLURM_JOB_ID", "4711"},
                                                   {"SLURM_STEP_ID", "2"}};

TEST(Identity, OfTorchrun) {
  const Options options = Options::from_environment(variables(kTorchrun));
  EXPECT_EQ(options.rank, 3);
  EXPECT_EQ(options.size, 4);
  EXPECT_EQ(options.controller, "rank0://node-a:29501") << "its own store has 29500";
  EXPECT_THAT(options.token, HasSubstr("run7"));
  auto restarted = kTorchrun;
  restarted["TORCHELASTIC_RESTART_COUNT"] = "1";
  EXPECT_NE(Options::from_environment(variables(restarted)).token, options.token);
}

TEST(Identity, OfOpenMpiOnOneHost) {
  const Options options = Options::from_environment(variables(kOpenMpi));
  EXPECT_EQ(options.rank, 1);
  EXPECT_EQ(options.size, 2);
  EXPECT_THAT(options.controller, testing::StartsWith("file:/scratch/motley-"));
  EXPECT_THAT(options.controller, testing::EndsWith("openmpi-815333377"));
}

TEST(Identity, OfPmiOnOneHost) {
  const Options options = Options::from_environment(variables(kPmi));
  EXPECT_EQ(options.rank, 0);
  EXPECT_EQ(options.size, 2);
  EXPECT_THAT(options.controller, testing::StartsWith("file:/tmp/motley-"));
}

TEST(Identity, OfASlurmStep) {
  const Options options = Options::from_environment(variables(kSlurm));
  EXPECT_EQ(options.rank, 5);
  EXPECT_EQ(options.size, 8);
  EXPECT_EQ(options.controller, "rank0://gpu07:25378");  // 20000 + (4711 * 16 + 2) % 10000
  EXPECT_EQ(options.token, "slurm-4711.2");
  // A batch script has the variables of the job, but is one process.
  EXPECT_EQ(Options::from_environment(
                variables({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_JOB_ID", "1"}}))
                .size,
            1);
}

TEST(Identity, OfAKubernetesIndexedJob) {
  const Options options =
      Options::from_environment(variables({{"JOB_COMPLETION_INDEX", "2"},
                                           {"MOTLEY_SIZE", "3"},
                                           {"MOTLEY_CONTROLLER", "rank0://train-0.train:29600"}}));
  EXPECT_EQ(options.rank, 2);
  EXPECT_EQ(options.controller, "rank0://train-0.train:29600");
  // Without a size its processes have nothing to do with each other.
  EXPECT_EQ(Options::from_environment(variables({{"JOB_COMPLETION_INDEX", "2"}})).size, 1);
}

TEST(Identity, TheInnermostSchedulerWins) {
  auto both = kSlurm;
  both.insert(kOpenMpi.begin(), kOpenMpi.end());
  EXPECT_EQ(identity_from(variables(both))->scheduler, "Open MPI");
  both.insert(kTorchrun.begin(), kTorchrun.end());
  EXPECT_EQ(identity_from(variables(both))->scheduler, "torchrun");
  auto by_hydra = kSlurm;  // mpiexec has srun start its proxies
  by_hydra.insert(kPmi.begin(), kPmi.end());
  EXPECT_EQ(identity_from(variables(by_hydra))->scheduler, "PMI");
}

// srun --mpi=pmi2 leaves the variables of PMI too, which do not say where rank 0 is.
TEST(Identity, OfASlurmStepThatSpeaksPmi) {
  auto pmi2 = kSlurm;
  pmi2["PMI_RANK"] = "5";
  pmi2["PMI_SIZE"] = "8";
  EXPECT_EQ(identity_from(variables(pmi2))->scheduler, "Slurm");
  EXPECT_EQ(Options::from_environment(variables(pmi2)).controller, "rank0://gpu07:25378");
}

TEST(Identity, OfAnInteractiveSlurmStep) {
  auto interactive = kSlurm;
  interactive["SLURM_PROCID"] = "0";
  interactive["SLURM_STEP_NUM_TASKS"] = "1";
  interactive["SLURM_STEP_ID"] = "4294967290";
  EXPECT_EQ(Options::from_environment(variables(interactive)).size, 1);
}

TEST(Identity, OurOwnVariablesOverruleIt) {
  auto own = kSlurm;
  own["MOTLEY_RANK"] = "1";
  own["MOTLEY_SIZE"] = "2";
  own["MOTLEY_CONTROLLER"] = "tcp://10.0.0.1:4000";
  const Options options = Options::from_environment(variables(own));
  EXPECT_EQ(options.rank, 1);
  EXPECT_EQ(options.size, 2);
  EXPECT_EQ(options.token, "");
  auto alone = kSlurm;
  alone["MOTLEY_SIZE"] = "1";
  EXPECT_EQ(Options::from_environment(variables(alone)).rank, 0);
}

TEST(Identity, ContradictionsAreNamed) {
  auto other_size = kSlurm;
  other_size["MOTLEY_SIZE"] = "4";
  expect_refused(other_size, {"Slurm", "4", "8"});
  auto bad_rank = kTorchrun;
  bad_rank["RANK"] = "4";
  expect_refused(bad_rank, {"RANK is \"4\""});
  auto two_hosts = kOpenMpi;
  two_hosts["OMPI_COMM_WORLD_LOCAL_SIZE"] = "1";
  expect_refused(two_hosts, {"MOTLEY_CONTROLLER", "Open MPI"});
}

TEST(Identity, TheFirstHostOfASlurmList) {
  EXPECT_EQ(first_host("node1"), "node1");
  EXPECT_EQ(first_host("a,b"), "a");
  EXPECT_EQ(first_host("node[003-007,012],login"), "node003");
  EXPECT_EQ(first_host("r[1,3]n4-ib,x"), "r1n4-ib");
  EXPECT_EQ(first_host("node[5]"), "node5");
  EXPECT_EQ(first_host(""), "");
}

}  // namespace
}  // namespace motley
