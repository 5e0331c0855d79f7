// Where the time of a step goes, as runs measure it: the parts add up to the step, and each has the time of its own
// cause.

#include <map>
#include <string>
#include <vector>

#include "tests/chapters/pipelines.h"

namespace stagecoach::test {
namespace {

using Parts = std::map<std::string, double>;

class PartsOfAStep : public PipelineTest {
 protected:
  /// Returns the parts of a step of the last epoch, and the "step".
  Parts parts(const std::string& program, const Flags& flags, const std::string& batch = "32") {
    const Outcome outcome =
        run(program, joined({"--data", "data", "--batch-size", batch, "--epochs", "1", "--out", "run"}, flags));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    const Json epoch = metrics("run").back();
    Parts all = epoch.value("step_parts", Parts{});
    all["step"] = epoch["seconds"].get<double>() / epoch["steps"].get<double>();
    return all;
  }
  /// Batches of 4 images make so many steps that what an epoch does once takes little time.
  Parts modelled(const std::string& program, const std::string& link, const Flags& more) {
    return parts(program, joined({"--clock", "modelled", "--device-model", "laptop", "--link", link}, more), "4");
  }
  /// Writes the file of a device on which the layers' operations take most of the time.
  std::string device(int load_rate) {
    Json rates;
    for (const char* kernels :
         {"matrix_product", "convolution", "wide_convolution", "attention", "elementwise", "reduction"}) {
      rates[kernels] = {{"flops_per_second", 1e10}, {"half", 1e5}};
    }
    return write("disk" + std::to_string(load_rate) + ".json", Json{{"name", "disk"},
                                                                    {"backend", "cpu"},
                                                                    {"float32", rates},
                                                                    {"float64", rates},
                                                                    {"bytes_per_second", 1e10},
                                                                    {"launch_seconds", 1e-6},
                                                                    {"host_launch_seconds", 0},
                                                                    {"host_bytes_per_second", 1e10},
                                                                    {"load_bytes_per_second", load_rate},
                                                                    {"memory_bytes", 10'000'000'000},
                                                                    {"copy_engines", 1}}
                                                                   .dump());
  }

  /// Expects the parts, which add up to the step; modelled, none takes less than no time, except by 1% of the step.
  void expect_sum(const std::string& program, const Flags& flags) {
    std::string text = program;
    for (const std::string& flag : flags) {
      text += " " + flag;
    }
    SCOPED_TRACE(text);
    Parts all = parts(program, flags);
    ASSERT_EQ(all.size(), 8U);
    const double step = all.extract("step").mapped();
    double sum = 0;
    for (const auto& [name, seconds] : all) {
      sum += seconds;
      if (text.find("modelled") != std::string::npos) {  // times that vary by chance may save waits
        EXPECT_GE(seconds, -0.01 * step) << name;
      }
    }
    EXPECT_NEAR(sum / step, 1, 1e-9);
    EXPECT_GT(all["ideal"], 0);
    EXPECT_GT(all["update"], 0);
  }

  /// Expects that `slow` takes longer than `fast`, and that all of it is this part.
  static void expect_only(const std::string& part, Parts fast, Parts slow) {
    const double longer = slow["step"] - fast["step"];
    EXPECT_GT(longer, 0.05 * fast["step"]);
    EXPECT_NEAR((slow[part] - fast[part]) / longer, 1, 0.03) << part;
    for (const auto& [name, seconds] : fast) {
      if (name != part && name != "step") {
        EXPECT_NEAR(slow[name], seconds, 0.03 * longer) << name;
      }
    }
  }
};

TEST_F(PartsOfAStep, AddUpToIt) {
  make_ragged_data();
  for (const std::string clock : {"modelled", "virtual"}) {
    const Flags naive{"--clock", clock, "--link", "pcie4"};
    const Flags pcie = joined(naive, {"--microbatches", "4"});
    expect_sum(kCh02, joined(naive, {"--ranks", "3"}));
    expect_sum(kCh03, joined(pcie, {"--ranks", "1"}));
    expect_sum(kCh03, joined(pcie, {"--ranks", "3"}));
    for (const char* schedule : {"naive", "gpipe", "1f1b", "interleaved", "zb-h1", "zbv"}) {
      expect_sum(kCh05, joined(pcie, {"--ranks", "2", "--schedule", schedule}));
    }
    expect_sum(kCh05, joined(pcie, {"--ranks", "2", "--clip-norm", "0.1"}));
    for (const char* versions : {"stash", "vertical", "2bw", "flush"}) {
      expect_sum(kCh04, joined(pcie, {"--ranks", "2", "--versions", versions}));
    }
    expect_sum(kCh04, joined(pcie, {"--ranks", "3", "--replicas", "2,1"}));
    for (const char* mode : {"single", "parameter", "buckets", "central"}) {
      expect_sum(kCh06, joined(pcie, {"--ranks", "2", "--mode", mode}));
    }
    expect_sum(kCh06, joined(pcie, {"--mesh", "dp=2,pp=2"}));
    expect_sum(kCh08, joined(pcie, {"--mesh", "tp=2,pp=2", "--model", "vit"}));
  }
  expect_sum(kCh01, {"--clock", "modelled"});
  for (const char* form : {"naive", "pipelined"}) {
    expect_sum(kCh07, {"--clock", "modelled", "--link", "pcie4", "--ranks", "3", "--form", form});
  }
}

// Nothing says there how long a message takes.
TEST_F(PartsOfAStep, OfSeveralRanksAreNotKnownOnTheWallClock) {
  make_data(128, 32);
  for (const std::string& program : {kCh03, kCh04, kCh06}) {
    EXPECT_EQ(parts(program, {"--clock", "wall", "--ranks", "2"}).size(), 1U) << program;  // the step alone
  }
}

TEST_F(PartsOfAStep, OfOneRankAreItsWorkAndItsData) {
  make_data(128, 32);
  for (const std::string& program : {kCh01, kCh03}) {
    Parts one = parts(program, joined({"--clock", "modelled"}, program == kCh01 ? Flags{} : Flags{"--ranks", "1"}));
    EXPECT_NEAR(one["ideal"] + one["update"] + one["host"], one["step"], 1e-9 * one["step"]);
    EXPECT_GT(one["update"], 0);
  }
}

// One rank works at a time, so it does not matter how the work is divided.
TEST_F(PartsOfAStep, OfNaiveParallelismOnAFreeLinkAreBubble) {
  make_data(128, 32);
  Parts naive = modelled(kCh02, "none", {"--ranks", "4"});
  EXPECT_NEAR(naive["bubble"] / naive["ideal"], 3, 0.1);
  for (const char* part : {"imbalance", "messages", "reductions"}) {
    EXPECT_NEAR(naive[part], 0, 0.02 * naive["step"]) << part;
  }
}

TEST_F(PartsOfAStep, OfAWorseSplitIsImbalance) {
  make_data(128, 32);
  const Flags vit{"--model", "vit", "--depth", "4", "--ranks", "2", "--microbatches", "4"};
  expect_only("imbalance", modelled(kCh03, "none", joined(vit, {"--split", "4,4"})),
              modelled(kCh03, "none", joined(vit, {"--split", "1,7"})));
}

TEST_F(PartsOfAStep, OfUnequalShardsIsImbalance) {
  make_data(120, 32);
  const Flags flags{"--clock", "modelled", "--device-model", "laptop", "--ranks", "2",
                    "--model", "vit",      "--link",         "none"};
  Parts unequal = parts(kCh06, flags, "3");  // two images on one rank, and one on the other
  EXPECT_GT(unequal["imbalance"], 0.05 * unequal["step"]);
  for (const char* part : {"bubble", "messages", "reductions"}) {
    EXPECT_EQ(unequal[part], 0) << part;
  }
}

TEST_F(PartsOfAStep, OfASlowLinkAreMessages) {
  make_data(128, 32);
  for (const std::string& program : {kCh02, kCh04, kCh05}) {
    SCOPED_TRACE(program);
    const Flags flags = joined({"--ranks", "2"}, program == kCh02 ? Flags{} : Flags{"--microbatches", "4"});
    expect_only("messages", modelled(program, "none", flags), modelled(program, "100us,1GB/s", flags));
  }
}

TEST_F(PartsOfAStep, OfASlowLinkBetweenReplicasAreReductions) {
  make_data(128, 32);
  for (const char* mode : {"single", "buckets"}) {
    const Flags flags{"--ranks", "2", "--mode", mode};
    expect_only("reductions", modelled(kCh06, "none", flags), modelled(kCh06, "100us,1GB/s", flags));
  }
}

TEST_F(PartsOfAStep, OfASlowDiskIsHost) {
  make_data(128, 32);
  const std::vector<std::pair<std::string, Flags>> programs{{kCh01, {}},
                                                            {kCh03, {"--ranks", "2", "--link", "none"}},
                                                            {kCh04, {"--ranks", "2", "--link", "none"}},
                                                            {kCh06, {"--ranks", "2", "--link", "none"}}};
  for (const auto& [program, flags] : programs) {
    SCOPED_TRACE(program);
    const auto with = [&, p = program, f = flags](int load_rate) {
      return parts(p, joined({"--clock", "modelled", "--device-model", device(load_rate)}, f));
    };
    expect_only("host", with(1'000'000'000), with(1'000'000));
  }
}

}  // namespace
}  // namespace stagecoach::test
