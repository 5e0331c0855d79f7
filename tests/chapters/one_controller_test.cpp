/// @file
/// Chapter 7 as its users run it: however many devices and however asynchronous, the weights of one device.

#include <fmt/format.h>

#include <string>
#include <tuple>

#include "tests/chapters/pipelines.h"

namespace stagecoach::test {
namespace {

class OneController : public PipelineTest {
 protected:
  /// Checks that runs with `flags` on 1 to 4 asynchronous devices equal a run on one synchronous device.
  void expect_same_on_any_devices(const std::string& name, const Flags& flags, const std::string& epochs = "1") {
    const std::string one = name + "-one";
    const Outcome synchronous = train(kCh07, one, joined(flags, {"--ranks", "1", "--synchronous"}), epochs);
    ASSERT_EQ(synchronous.exit_code, 0) << synchronous.err;
    for (const std::string& devices : unless_sanitized<Flags>({"1", "2", "3", "4"}, {"1", "3"})) {
      const std::string out = fmt::format("{}-{}", name, devices);
      const Outcome outcome = train(kCh07, out, joined(flags, {"--ranks", devices, "--balance", "layers"}), epochs);
      ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
      expect_same_training(out, one);
    }
  }
};

// A whole batch at a time: what chapter 1 trains.
TEST_F(OneController, TrainsNaivelyWhatOneDeviceTrains) {
  make_ragged_data();
  for (const Flags& optimizer : {Flags{"--optimizer", "sgd"}, Flags{"--optimizer", "adam"}}) {
    const std::string name = "naive-" + optimizer.back();
    expect_same_on_any_devices(name, joined(optimizer, {"--form", "naive"}), "2");
    ASSERT_EQ(train(kCh01, name + "-chapter-1", optimizer).exit_code, 0);
    expect_same_training(name + "-one", name + "-chapter-1");
  }
}

// Micro-batches, concatenated before one loss: what one device trains that does the same.
TEST_F(OneController, TrainsPipelinedWhatOneDeviceTrainsWithTheSameMicroBatches) {
  make_ragged_data();
  for (const char* optimizer : {"sgd", "adam"}) {
    expect_same_on_any_devices(fmt::format("pipelined-{}", optimizer), {"--optimizer", optimizer}, "2");
  }
  ASSERT_EQ(train(kCh07, "copies", {"--copy-stream", "compute"}).exit_code, 0);
  expect_same_training("copies", "pipelined-sgd-one");
}

/// A form and an optimizer.
class OneControllerResidual : public OneController,
                              public ::testing::WithParamInterface<std::tuple<std::string, std::string>> {};
INSTANTIATE_TEST_SUITE_P(
    FormsAndOptimizers, OneControllerResidual,
    ::testing::Combine(::testing::ValuesIn(unless_sanitized<Flags>({"naive", "pipelined"}, {"pipelined"})),
                       ::testing::Values("sgd", "adam")),
    [](const auto& test) { return fmt::format("{}_{}", std::get<0>(test.param), std::get<1>(test.param)); });

TEST_P(OneControllerResidual, TrainsAResidualNetwork) {
  make_data(4, 1);
  const auto& [form, optimizer] = GetParam();
  Flags flags{"--model", "resnet18", "--form", form, "--optimizer", optimizer};
  if (form == "pipelined") {
    flags = joined(flags, {"--microbatches", "3"});
  }
  expect_same_on_any_devices("resnet", flags);
}

TEST_F(OneController, MeasuresAllDevices) {
  make_data(96, 16);
  const Outcome outcome = train(kCh07, "four", {"--summary"}, "1");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json epoch = metrics("four").back();
  ASSERT_EQ(epoch["peak_bytes"].size(), 4U) << epoch;
  for (const Json& bytes : epoch["peak_bytes"]) {
    EXPECT_GT(bytes.get<double>(), 0) << epoch;
  }
  EXPECT_GT(epoch["idle"].get<double>(), 0);
  EXPECT_LT(epoch["idle"].get<double>(), 1);
  // 32 images, [6, 14, 14] after conv1: 32 x 1176 x 4 bytes.
  for (const char* part : {"Summary, epoch 1\n", "% (ideal 27.3%)\n", "\n  memory per device  ",
                           "\n  bytes per link     0.144 MiB per step at most, from device 1 to device 2\n",
                           "\n  staleness          0 updates"}) {
    EXPECT_NE(outcome.out.find(part), std::string::npos) << part << outcome.out;
  }
}

TEST_F(OneController, ContinuesWhereItStopped) {
  make_data(96, 16);
  ASSERT_EQ(train(kCh07, "whole", {"--optimizer", "adam"}, "2").exit_code, 0);
  ASSERT_EQ(train(kCh07, "parts", {"--optimizer", "adam"}, "1").exit_code, 0);
  const Outcome resumed = run(kCh07, {"--resume", "parts", "--epochs", "2", "--ranks", "2"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  expect_same_training("parts", "whole");
}

// 8 micro-batches on four devices take 8 + 4 - 1 ticks.
TEST_F(OneController, ExplainsElevenClockTicks) {
  const Outcome outcome = run(kCh07, {"--smoke", "--explain"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const std::string& line :
       {std::string("64 images in 8 micro-batches: 11 clock ticks\n"),
        std::string("  tick   cpu:1   cpu:2   cpu:3   cpu:4\n     0     0F0       .       .       .\n"),
        std::string("     3     0F3     1F2     2F1     3F0\n"),
        std::string("    10       .       .       .     3F7\n"),
        std::string("  conv2          cpu:2    [64, 16, 10, 10]            2416\n")}) {
    EXPECT_NE(outcome.out.find(line), std::string::npos) << line << " is not in " << outcome.out;
  }
}

TEST_F(OneController, ShowsTheToyModelOnTwoDevices) {
  const Outcome outcome = run(kCh07, {"--model", "toy"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("fc2.weight   cpu:2    cpu:2"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("one device gets the same weights"), std::string::npos) << outcome.out;
}

// The host and each device have a track of their own.
TEST_F(OneController, TracesTheHostAndTheDevices) {
  make_data(64, 16);
  ASSERT_EQ(train(kCh07, "traced", {}, "1").exit_code, 0);
  const std::string trace = bytes("traced/trace.json");
  for (const char* track : {R"("name":"host")", R"("name":"cpu:1")", R"("name":"cpu:4")", R"("name":"cpu:3 copies")"}) {
    EXPECT_NE(trace.find(track), std::string::npos) << track;
  }
  EXPECT_NE(trace.find(R"("name":"3F7","cat":"device")"), std::string::npos);
}

class OneControllerModelled : public OneController {
 protected:
  /// Returns the seconds of an epoch.
  double seconds(const std::string& name, const Flags& flags) {
    const Outcome outcome = train(kCh07, name, joined({"--clock", "modelled"}, flags), "1");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return metrics(name).back()["seconds"];
  }
};

TEST_F(OneControllerModelled, ComputesTheSameTimesAndMemoryAgain) {
  make_data(96, 16);
  for (const std::string form : {"naive", "pipelined"}) {
    const Flags flags{"--device-model", "h200", "--link", "pcie4", "--form", form};
    seconds(form, flags);
    seconds(form + "-again", flags);
    EXPECT_EQ(bytes(form + "/metrics.jsonl"), bytes(form + "-again/metrics.jsonl"));
    EXPECT_TRUE(bytes(form + "/trace.json") == bytes(form + "-again/trace.json")) << "traces differ";
  }
}

// A device that computes slowly gains from a pipeline. On a fast one its launches cost more than the kernels.
TEST_F(OneControllerModelled, PipelinesPayOffWhereKernelsTakeLongerThanLaunches) {
  make_data(96, 16);
  EXPECT_LT(seconds("slow", {"--device-model", "laptop", "--microbatches", "2"}),
            seconds("slow-naive", {"--device-model", "laptop", "--form", "naive"}));
  EXPECT_GT(seconds("fast", {"--device-model", "h200"}),
            seconds("fast-naive", {"--device-model", "h200", "--form", "naive"}));
}

// Chapter 1's loader copies images ahead; here the controller does.
TEST_F(OneControllerModelled, OneDeviceTakesWhatChapterOneTakes) {
  make_data(96, 16);
  const Flags flags{"--device-model", "laptop", "--link", "20us,1GB/s"};
  const double waits = seconds("waits", joined(flags, {"--form", "naive", "--ranks", "1", "--synchronous"}));
  ASSERT_EQ(train(kCh01, "one", {"--clock", "modelled", "--device-model", "laptop"}, "1").exit_code, 0);
  EXPECT_NEAR(waits / metrics("one").back()["seconds"].get<double>(), 1, 0.01);
  EXPECT_GT(seconds("two", joined(flags, {"--form", "naive", "--ranks", "2", "--balance", "layers", "--synchronous"})),
            waits);
}

TEST_F(OneControllerModelled, ExplainsAStepThatNobodyRuns) {
  const Outcome outcome = run(kCh07, {"--smoke", "--explain", "--clock", "modelled"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("\ncpu:4  ....."), std::string::npos) << outcome.out;
  EXPECT_EQ(run(kCh07, {"--smoke", "--explain", "--clock", "modelled"}).out, outcome.out);
}

TEST_F(OneController, RefusesWhatItCannotDo) {
  expect_refused(kCh07, {"--smoke", "--form", "naive", "--microbatches", "4"}, {"--form naive", "--form pipelined"});
  expect_refused(kCh07, {"--smoke", "--clock", "virtual"}, {"--clock virtual", "real clock", "--form remote"});
  expect_refused(kCh07, {"--smoke", "--link", "ethernet100"}, {"--link: --form pipelined sends no messages"});
  expect_refused(kCh07, {"--model", "toy", "--ranks", "1"}, {"two devices"});
  expect_refused(kCh07, {"--smoke", "--ranks", "128"}, {"--ranks 128", "at most 127"});
  expect_refused(kCh07, {"--smoke", "--split", "6,6"}, {"--split 6,6", "expected 4 stages"});
  expect_refused(kCh03, {"--smoke", "--form", "naive"}, {"--form is not a flag of ch03_gpipe", "chapter 7"});
}

}  // namespace
}  // namespace stagecoach::test
