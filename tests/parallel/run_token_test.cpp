// The secret of a run's ranks, and the addresses that its store may listen at.

#include "parallel/launch/run_token.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <future>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/comm/tcp/control_channel.h"
#include "parallel/comm/tcp/tcp_socket.h"
#include "tests/support/errors.h"

namespace stagecoach {
namespace {

namespace fs = std::filesystem;
using test::fails_with;

std::map<std::string, std::string> token_variables;  // of the environment that a test looks into

const char* variable_of(const char* name) {
  const auto found = token_variables.find(name);
  return found == token_variables.end() ? nullptr : found->second.c_str();
}

/// A home that is empty at first.
class RunToken : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directory(home);
    token_variables = {{"HOME", home}};
  }
  void TearDown() override { fs::remove_all(home); }

  const std::string home = testing::TempDir() + "stagecoach_home_" + random_token();
  const std::string file = home + "/.stagecoach_token";
};

TEST_F(RunToken, OfTheEnvironmentComesFirst) {
  token_variables["STAGECOACH_TOKEN"] = "0123456789abcdef";
  EXPECT_EQ(run_token(variable_of), "0123456789abcdef");
  EXPECT_FALSE(fs::exists(file));
}

TEST_F(RunToken, ThatIsNoSecretIsRefused) {
  for (const std::string& token : {std::string(), std::string("short"), std::string(257, 'x')}) {
    token_variables["STAGECOACH_TOKEN"] = token;
    EXPECT_TRUE(fails_with<UsageError>({"STAGECOACH_TOKEN: expected a secret of 16 to 256 bytes", "openssl rand"},
                                       [] { run_token(variable_of); }));
  }
}

TEST_F(RunToken, OfTheUserIsMadeOnceAndOnlyForThatUser) {
  std::vector<std::future<std::string>> ranks;
  for (int r = 0; r < 8; ++r) {
    ranks.push_back(std::async(std::launch::async, [] { return run_token(variable_of); }));
  }
  std::set<std::string> tokens;
  for (auto& rank : ranks) {
    tokens.insert(rank.get());
  }
  EXPECT_EQ(tokens.size(), 1U);
  EXPECT_EQ(tokens.begin()->size(), 32U);
  EXPECT_EQ(run_token(variable_of), *tokens.begin());
  struct stat state {};
  ASSERT_EQ(::stat(file.c_str(), &state), 0);
  EXPECT_EQ(state.st_mode & 0777U, 0600U);
  EXPECT_EQ(std::distance(fs::directory_iterator(home), fs::directory_iterator()), 1) << "no drafts are left";
}

TEST_F(RunToken, ThatOthersCanReadIsRefused) {
  const std::string token = run_token(variable_of);
  fs::permissions(file, fs::perms::owner_read | fs::perms::owner_write | fs::perms::others_read);
  EXPECT_TRUE(
      fails_with<UsageError>({file.c_str(), "got mode 604", "remove the file"}, [] { run_token(variable_of); }));
  fs::remove(file);
  EXPECT_NE(run_token(variable_of), token);
}

TEST_F(RunToken, WithoutAPlaceIsAskedFor) {
  token_variables = {};
  EXPECT_TRUE(fails_with<UsageError>({"neither STAGECOACH_TOKEN nor HOME"}, [] { run_token(variable_of); }));
  token_variables["HOME"] = home + "/no such folder";
  EXPECT_TRUE(fails_with<UsageError>({"cannot be written", "STAGECOACH_TOKEN"}, [] { run_token(variable_of); }));
}

const std::string kToken = "a token of tests";

TEST(RunAddress, NoOtherIsListenedAt) {
  const BootstrapServer server({{"127.0.0.1", 0}, kToken}, 2);
  const RankAddress beside{{"127.0.0.2", server.address().at.port}, kToken};  // this machine too
  EXPECT_TRUE(fails_with<CommError>(
      {"no answer"}, [&] { ControlChannel(beside, "test", 1, 2, std::chrono::duration<double>(0.05)); }));
}

TEST(RunAddress, OfAnotherMachineIsRefused) {
  EXPECT_TRUE(
      fails_with<UsageError>({"192.0.2.1 is not an address of this machine", "MASTER_ADDR=", "start rank 0"}, [] {
        BootstrapServer({{"192.0.2.1", 0}, kToken}, 2);
      }));
  EXPECT_TRUE(fails_with<UsageError>({"0.0.0.0 means every address", "MASTER_ADDR="}, [] {
    BootstrapServer({{"0.0.0.0", 0}, kToken}, 2);
  }));
}

TEST(RunAddress, OfThisMachineCanBeListenedAt) {
  const BootstrapServer server({{own_address(), 0}, kToken}, 2);
  EXPECT_FALSE(ControlChannel(server.address(), "test", 1, 2, std::chrono::seconds(30)).has_failed());
}

}  // namespace
}  // namespace stagecoach
