// What launchers leave in the environment, and where processes meet by it.

#include "parallel/launch/launch_environment.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <thread>
#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/launch/rendezvous.h"
#include "tests/support/errors.h"

namespace stagecoach {
namespace {

using test::fails_with;
using Variables = std::map<std::string, std::string>;

const RankAddress kHere{{"127.0.0.1", 0}, "the token of this test"};

Variables variables;  // of the environment that a test looks into

const char* get(const char* name) {
  const auto found = variables.find(name);
  return found == variables.end() ? nullptr : found->second.c_str();
}

std::optional<LaunchEnvironment> launched_with(const Variables& all) {
  variables = all;
  return launched_in(get);
}

std::optional<TcpAddress> master_with(const char* by, const Variables& all) {
  variables = all;
  return master({0, 2, by}, get);
}

void expect_launched(const Variables& all, const LaunchEnvironment& wanted) {
  const auto found = launched_with(all);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->rank, wanted.rank);
  EXPECT_EQ(found->size, wanted.size);
  EXPECT_EQ(found->by, wanted.by);
  EXPECT_EQ(found->local_rank, wanted.local_rank);
}

TEST(LaunchEnvironment, ByEachLauncher) {
  EXPECT_FALSE(launched_with({}).has_value());
  expect_launched({{"OMPI_COMM_WORLD_RANK", "5"}, {"OMPI_COMM_WORLD_SIZE", "8"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}},
                  {5, 8, "mpirun", 1});
  expect_launched({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "0"}}, {1, 2, "mpirun", 0});
  expect_launched({{"SLURM_PROCID", "3"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_LOCALID", "1"}}, {3, 4, "srun", 1});
  expect_launched({{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "1"}}, {3, 4, "torchrun", 1});
  expect_launched({{"RANK", "3"}, {"WORLD_SIZE", "4"}}, {3, 4, "torchrun", 3});
  EXPECT_FALSE(launched_with({{"RANK", "0"}}).has_value());
}

/// The variables of `inner` and those of `outer`, within which it was started.
Variables within(const Variables& outer, Variables inner) {
  inner.insert(outer.begin(), outer.end());
  return inner;
}

const Variables kOpenMpi{
    {"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}};
const Variables kMpich{{"PMI_RANK", "4"}, {"PMI_SIZE", "6"}, {"MPI_LOCALRANKID", "2"}};
const Variables kSrun{{"SLURM_JOB_ID", "7"},         {"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "3"},
                      {"SLURM_STEP_NUM_TASKS", "5"}, {"SLURM_LOCALID", "0"}, {"SLURM_NTASKS", "5"}};
const Variables kPmi2{{"PMI_RANK", "3"}, {"PMI_SIZE", "5"}};
const Variables kTorchrun{{"RANK", "7"}, {"WORLD_SIZE", "9"}, {"LOCAL_RANK", "1"}, {"TORCHELASTIC_RUN_ID", "none"}};
const Variables kByHand{{"RANK", "3"}, {"WORLD_SIZE", "5"}, {"MASTER_ADDR", "node7"}, {"MASTER_PORT", "29500"}};

TEST(LaunchEnvironment, InAnotherLaunchersJob) {
  // mpirun starts its helpers on other nodes by srun, whose variables the ranks inherit.
  expect_launched(within(kSrun, kOpenMpi), {1, 2, "mpirun", 1});
  expect_launched(within(kSrun, kMpich), {4, 6, "mpirun", 2});
  expect_launched(within(kOpenMpi, kMpich), {1, 2, "mpirun", 1});
  for (const Variables& outer : {kSrun, within(kSrun, kPmi2), kOpenMpi, kMpich}) {
    expect_launched(within(outer, kTorchrun), {7, 9, "torchrun", 1});
  }
}

TEST(LaunchEnvironment, BySrunWithPmi2IsThatOfSrun) {
  expect_launched(within(kSrun, kPmi2), {3, 5, "srun", 0});
  EXPECT_FALSE(launched_with(within(kSrun, kPmi2))->has_pmix);
  expect_launched(kPmi2, {3, 5, "mpirun", 3});
  expect_launched(within(kSrun, kByHand), {3, 5, "srun", 0});
}

TEST(LaunchEnvironment, OfAJobIsNotOfAStep) {
  const Variables salloc{{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "4"}};
  const Variables sbatch = within(salloc, {{"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}});
  for (const Variables& job : {salloc, sbatch}) {
    EXPECT_FALSE(launched_with(job).has_value());
    expect_launched(within(job, kOpenMpi), {1, 2, "mpirun", 1});
    expect_launched(within(job, kByHand), {3, 5, "torchrun", 3});
  }
}

TEST(LaunchEnvironment, BySrunWithPmixOrWithout) {
  const Variables without{{"SLURM_PROCID", "3"}, {"SLURM_STEP_NUM_TASKS", "4"}};
  EXPECT_FALSE(launched_with(without)->has_pmix);
  Variables with = without;
  with["PMIX_RANK"] = "3";
  EXPECT_TRUE(launched_with(with)->has_pmix);
  EXPECT_TRUE(launched_with({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}})->has_pmix);
}

TEST(LaunchEnvironment, RefusesWhatIsNoRank) {
  const auto refuses = [](std::initializer_list<const char*> context, const Variables& all) {
    EXPECT_TRUE(fails_with<UsageError>(context, [&] { launched_with(all); }));
  };
  refuses({"RANK=4", "WORLD_SIZE=4", "expected a rank below"}, {{"RANK", "4"}, {"WORLD_SIZE", "4"}});
  refuses({"RANK is not valid", "got 'x'"}, {{"RANK", "x"}, {"WORLD_SIZE", "4"}});
  refuses({"RANK is not valid", "got '-1'"}, {{"RANK", "-1"}, {"WORLD_SIZE", "4"}});
  refuses({"WORLD_SIZE is not valid", "got '2.5'"}, {{"RANK", "0"}, {"WORLD_SIZE", "2.5"}});
  refuses({"LOCAL_RANK is not valid", "got ''"}, {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", ""}});
}

TEST(LaunchEnvironment, MeetsAtTheMaster) {
  const auto address = master_with("torchrun", {{"MASTER_ADDR", "node7"}, {"MASTER_PORT", "29500"}});
  ASSERT_TRUE(address.has_value());
  EXPECT_EQ(to_string(*address), "node7:29500");
  EXPECT_EQ(to_string(*master_with("srun", {{"MASTER_ADDR", "node7"}, {"MASTER_PORT", "1"}})), "node7:1");
  EXPECT_FALSE(master_with("mpirun", {}).has_value()) << "MPI tells";
  const auto beside = master_with(
      "torchrun", {{"MASTER_ADDR", "node7"}, {"MASTER_PORT", "29500"}, {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  EXPECT_EQ(beside->port, 29501) << "torchrun itself listens at the other";
}

TEST(LaunchEnvironment, RefusesAMasterThatIsNone) {
  const auto refuses = [](std::initializer_list<const char*> context, const Variables& all) {
    EXPECT_TRUE(fails_with<UsageError>(context, [&] { master_with("torchrun", all); }));
  };
  refuses({"MASTER_PORT is not set"}, {});
  refuses({"MASTER_PORT is not set"}, {{"MASTER_ADDR", "node7"}});
  refuses({"MASTER_ADDR is not set"}, {{"MASTER_PORT", "29500"}});
  refuses({"MASTER_ADDR is not set"}, {{"MASTER_ADDR", ""}, {"MASTER_PORT", "29500"}});
  for (const char* port : {"", "x", "0", "-1", "65536", "29500 "}) {
    refuses({"MASTER_PORT=", port, "is not a port"}, {{"MASTER_ADDR", "node7"}, {"MASTER_PORT", port}});
  }
  refuses({"is not a port", "65534"},
          {{"MASTER_ADDR", "node7"}, {"MASTER_PORT", "65535"}, {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
}

TEST(Rendezvous, AgreesOnWhatRankZeroHas) {
  const std::chrono::duration<double> timeout(30);
  auto server = std::make_unique<BootstrapServer>(kHere, 2);
  const RankAddress address = server->address();
  std::jthread other([&] {
    Rendezvous place({1, 2, "torchrun"}, address, timeout);
    for (const float wanted : {1.0F, 2.0F}) {
      Tensor values = Tensor::zeros({3});
      place.broadcast_from_rank_zero(values);
      EXPECT_EQ(values.to_vector<float>(), std::vector<float>(3, wanted));
    }
  });
  Rendezvous place({0, 2, "torchrun"}, address, timeout, std::move(server));
  for (const float mine : {1.0F, 2.0F}) {
    Tensor values = Tensor::full({3}, mine);
    place.broadcast_from_rank_zero(values);
  }
}

TEST(Rendezvous, OfTheProcessesOfMpirun) {
  if (!launch_environment()) {
    GTEST_SKIP() << "mpirun has not started this";
  }
  Rendezvous& place = Rendezvous::instance({.ranks = launch_environment()->size, .transport = Transport::nccl});
  Tensor values = Tensor::full({3}, 1.0F + static_cast<float>(launch_environment()->rank));
  place.broadcast_from_rank_zero(values);
  EXPECT_EQ(values.to_vector<float>(), std::vector<float>(3, 1.0F));
}

TEST(Rendezvous, RefusesTwoOfOneRank) {
  const std::chrono::duration<double> timeout(30);
  auto server = std::make_unique<BootstrapServer>(kHere, 2);
  const RankAddress address = server->address();
  const Rendezvous place({0, 2, "torchrun"}, address, timeout, std::move(server));
  const Rendezvous one({1, 2, "torchrun"}, address, timeout);
  EXPECT_TRUE(fails_with<UsageError>({"two processes claim to be rank 1", "RANK"}, [&] {
    Rendezvous({1, 2, "torchrun"}, address, timeout);
  }));
}

TEST(Rendezvous, RefusesAWorldOfAnotherSize) {
  const std::chrono::duration<double> timeout(30);
  const BootstrapServer server(kHere, 2);
  EXPECT_TRUE(
      fails_with<UsageError>({"rank 0 (127.0.0.1:", "it is rank 1 of 3", "a run of 2 ranks", "WORLD_SIZE"}, [&] {
        Rendezvous({1, 3, "torchrun"}, server.address(), timeout);
      }));
}

// It failed already when its rank was waited for: the end of the program does not wait as long again.
TEST(Rendezvous, OfARankThatNeverComesEndsAtItsDeadline) {
  const std::chrono::duration<double> timeout(0.5);
  const auto start = std::chrono::steady_clock::now();
  {
    Rendezvous place({0, 2, "torchrun"}, kHere, timeout);
    std::this_thread::sleep_for(timeout);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, 2 * timeout);
}

TEST(Rendezvous, RefusesAPortThatIsTaken) {
  const BootstrapServer server(kHere, 2);
  EXPECT_TRUE(fails_with<UsageError>({"MASTER_PORT"}, [&] {
    Rendezvous({0, 2, "torchrun"}, server.address(), std::chrono::seconds(30));
  }));
}

}  // namespace
}  // namespace stagecoach
