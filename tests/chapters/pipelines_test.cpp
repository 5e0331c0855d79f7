/// @file
/// Chapters 2, 3 and 5 as their users run them: whatever the split and the schedule, they train what one device trains.

#include "tests/chapters/pipelines.h"

#include <fmt/format.h>

#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "parallel/schedule/schedule_kinds.h"

namespace stagecoach::test {
namespace {

namespace fs = std::filesystem;

const std::string& kNaive = kCh02;
const std::string& kGpipe = kCh03;
const std::string& kInterleaved = kCh05;

class Pipelines : public PipelineTest {};

TEST_F(Pipelines, EqualOneDeviceByteForByte) {
  make_ragged_data();
  struct Variant {
    std::string program;
    Flags flags;
  };
  const std::map<std::string, std::vector<Variant>> variants{
      {"1", {{kNaive, {}}, {kNaive, {"--ranks", "4", "--balance", "params"}}, {kNaive, {"--clock", "virtual"}}}},
      {"5",
       {{kGpipe, {}},
        {kGpipe, {"--schedule", "by-hand", "--ranks", "3", "--balance", "layers"}},
        {kGpipe, {"--recompute", "--split", "5,7"}},
        {kInterleaved, {"--schedule", "1f1b", "--ranks", "8", "--clock", "virtual", "--link", "pcie4"}},
        {kInterleaved, {"--schedule", "zb-h1", "--ranks", "3"}},
        {kInterleaved, {"--schedule", "zb-h2", "--ranks", "3", "--recompute"}},
        {kInterleaved, {"--schedule", "interleaved-zb", "--ranks", "2", "--group", "5"}},
        {kInterleaved, {"--schedule", "zbv", "--ranks", "4", "--recompute"}},
        {kInterleaved, {"--schedule", "dualpipev", "--ranks", "2", "--clock", "virtual"}},
        {kInterleaved, {"--schedule", "foldx_aiao", "--chunks", "4", "--recompute"}}}},
      {"6", {{kInterleaved, {"--chunks", "3", "--ranks", "3"}}, {kInterleaved, {"--schedule", "interleaved-sync"}}}}};
  for (const auto& [count, pipelines] : variants) {
    const std::string one = "one-" + count;
    ASSERT_EQ(train(kCh01, one, {"--microbatches", count}).exit_code, 0);
    for (std::size_t i = 0; i < pipelines.size(); ++i) {
      const std::string out = fmt::format("pipeline-{}-{}", count, i);
      Flags flags = pipelines[i].flags;
      if (count != "1") {
        flags.insert(flags.end(), {"--microbatches", count});
      }
      const Outcome outcome = train(pipelines[i].program, out, flags);
      ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
      SCOPED_TRACE(fmt::format("{} {}", pipelines[i].program, fmt::join(flags, " ")));
      expect_same_training(out, one);
    }
  }
}

TEST_F(Pipelines, ClipByTheNormOfOneDevice) {
  make_ragged_data();
  const Flags free{"--microbatches", "4", "--optimizer",    "adamw", "--lr-schedule", "cosine",
                   "--lr-warmup",    "2", "--weight-decay", "0.1",   "--decay",       "weights"};
  const Flags clipped = joined(free, {"--clip-norm", "0.05"});
  ASSERT_EQ(train(kCh01, "free", free).exit_code, 0);
  ASSERT_EQ(train(kCh01, "one", clipped).exit_code, 0);
  EXPECT_FALSE(bytes("one/weights.safetensors") == bytes("free/weights.safetensors"));
  const std::vector<std::pair<std::string, Flags>> pipelines{
      {kGpipe, {"--ranks", "3"}},
      {kCh04, {"--versions", "flush", "--ranks", "3", "--balance", "layers"}},
      {kCh04, {"--versions", "flush", "--schedule", "by-hand", "--ranks", "2"}},
      {kInterleaved, {"--schedule", "zbv", "--ranks", "2"}},
      {kCh06, {"--mesh", "dp=1,pp=2"}}};
  for (std::size_t i = 0; i < pipelines.size(); ++i) {
    const std::string out = fmt::format("clipped-{}", i);
    const Outcome outcome = train(pipelines[i].first, out, joined(clipped, pipelines[i].second));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    expect_same_weights(out, "one");
  }
}

// A batch in one piece, or in two by ranks that share it.
TEST_F(Pipelines, ClipByTheNormOfOneDeviceInEveryChapter) {
  make_ragged_data();
  const Flags clipped{"--clip-norm", "0.2"};
  const Flags halved = joined(clipped, {"--microbatches", "2"});
  struct Variant {
    std::string program;
    Flags flags;
    std::string wanted;
  };
  ASSERT_EQ(train(kCh01, "whole", clipped).exit_code, 0);
  ASSERT_EQ(train(kCh01, "halves", halved).exit_code, 0);
  const std::vector<Variant> variants{{kNaive, clipped, "whole"},
                                      {kCh07, joined(clipped, {"--form", "naive", "--ranks", "3"}), "whole"},
                                      {kCh04, joined(halved, {"--versions", "flush", "--replicas", "2,1"}), "halves"},
                                      {kCh06, joined(clipped, {"--mode", "single"}), "halves"},
                                      {kCh06, joined(clipped, {"--mode", "parameter"}), "halves"},
                                      {kCh06, joined(clipped, {"--mode", "buckets"}), "halves"},
                                      {kCh06, joined(clipped, {"--mode", "central"}), "halves"}};
  for (std::size_t i = 0; i < variants.size(); ++i) {
    const std::string out = fmt::format("variant-{}", i);
    ASSERT_EQ(train(variants[i].program, out, variants[i].flags).exit_code, 0);
    expect_same_weights(out, variants[i].wanted);
  }
}

// The rate follows the step, which a resumed run goes on counting; the end of the training is part of it.
TEST_F(Pipelines, GoOnWithTheRateOfTheirSchedule) {
  make_ragged_data();
  for (const std::string shape : {"cosine", "step"}) {
    const Flags flags{"--microbatches", "4", "--lr-schedule", shape, "--lr-warmup", "3", "--optimizer", "adagrad"};
    ASSERT_EQ(train(kCh01, "whole-" + shape, flags, "40").exit_code, 0);
    const Outcome stopped =
        interrupt(kGpipe, joined({"--data", "data", "--batch-size", "32", "--epochs", "40", "--out", shape}, flags));
    ASSERT_EQ(stopped.exit_code, 130) << stopped.err;
    expect_refused(kGpipe, {"--resume", shape, "--epochs", "50"}, {"--epochs", "differs"});
    const Outcome resumed = run(kGpipe, {"--resume", shape});
    expect_went_on(stopped, resumed);
    expect_same_training(shape, "whole-" + shape);
    expect_refused(kGpipe, {"--resume", shape}, {"done after 40 epochs", "start a new run for more epochs"});
  }
}

// A model of equal blocks, whose sizes are part of the training.
TEST_F(Pipelines, TrainVitAndMlpAsOneDeviceDoes) {
  make_data(48, 16);
  const Flags vit{"--model", "vit", "--depth", "2", "--width", "16", "--heads", "2"};
  const Flags mlp{"--model", "mlp", "--depth", "3", "--width", "32"};
  for (const auto& [name, model] : {std::pair("vit", vit), {"mlp", mlp}}) {
    const std::string one = fmt::format("one-{}", name);
    const std::string pipeline = fmt::format("pipeline-{}", name);
    const Flags flags = joined(model, {"--microbatches", "4"});
    ASSERT_EQ(train(kCh01, one, flags).exit_code, 0);
    const Outcome outcome = train(kInterleaved, pipeline, joined(flags, {"--schedule", "zbv", "--recompute"}), "1");
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_NE(outcome.out.find("  depth         "), std::string::npos) << outcome.out;
    expect_refused(kInterleaved, {"--resume", pipeline, "--depth", "4"}, {"--depth", "differs"});
    ASSERT_EQ(run(kInterleaved, {"--resume", pipeline, "--epochs", "2", "--schedule", "1f1b"}).exit_code, 0);
    expect_same_training(pipeline, one);
  }
}

TEST_F(Pipelines, Chapter2ShowsTheToyFirst) {
  const Outcome outcome = run(kNaive, {"--model", "toy"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const char* text : {"before the step", "after it", "fc1.weight", "one device gets the same weights"}) {
    EXPECT_NE(outcome.out.find(text), std::string::npos) << text;
  }
  EXPECT_EQ(outcome.out.find("Epoch"), std::string::npos);
  make_data(32, 32);  // test images of all classes, or a note would say which have none
  const std::string out = run(kNaive, {"--data", "data", "--epochs", "1"}).out;
  EXPECT_EQ(out.find("The toy model"), out.find('\n') + 1) << out;  // after the line on the data
}

TEST_F(Pipelines, WriteTheFilesOfTheContract) {
  make_data(96, 32);
  const Outcome outcome =
      train(kInterleaved, "run", {"--ranks", "2", "--microbatches", "4", "--clock", "virtual", "--link", "nvlink4"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("(ideal 11.1%), virtual\n"), std::string::npos) << outcome.out;
  const Json config = Json::parse(bytes("run/config.json"));
  EXPECT_EQ(config["ranks"], 2);
  EXPECT_EQ(config["schedule"], "interleaved");
  EXPECT_EQ(config["chunks"], 2);
  const auto lines = metrics("run");
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[1]["clock"], "virtual");
  EXPECT_EQ(lines[1]["peak_bytes"].size(), 2U);
  EXPECT_GT(lines[1]["predicted_seconds"], 0);
  EXPECT_GT(lines[1]["idle"], 0);
  EXPECT_LT(lines[1]["idle"], 1);
}

TEST_F(Pipelines, ExplainPredictsAndTrainsNothing) {
  const Outcome outcome = run(kInterleaved, {"--explain", "--smoke", "--ranks", "4", "--microbatches", "8", "--balance",
                                             "layers", "--out", "plan"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const char* text : {"0F0,0F1", "rank 3", "(p - 1) / (v m + p - 1) = 15.8%", "11, 9, 7, 5"}) {
    EXPECT_NE(outcome.out.find(text), std::string::npos) << text;
  }
  EXPECT_EQ(outcome.out.find("Epoch"), std::string::npos);
  const Json prediction = Json::parse(bytes("plan/prediction.json"));
  EXPECT_EQ(prediction["step_seconds"], 57);
  EXPECT_NEAR(prediction["idle"].get<double>(), 3.0 / 19, 1e-12);
  EXPECT_EQ(prediction["peak_activations"], (Json{11, 9, 7, 5}));
  EXPECT_EQ(bytes("plan/schedule.csv").rfind("0F0,0F1,0F2,0F3,4F0", 0), 0U);
  EXPECT_NE(bytes("plan/schedule.svg").find("<svg"), std::string::npos);
  EXPECT_FALSE(fs::exists(folder() / "plan/weights.safetensors"));
  // What it writes, it can run.
  const Outcome again = run(kInterleaved, {"--explain", "--smoke", "--ranks", "4", "--microbatches", "8", "--schedule",
                                           "plan/schedule.csv", "--balance", "layers", "--out", "again"});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(planned_step("again"), planned_step("plan"));
}

// With fewer micro-batches than ranks a step of looped breadth-first is idle for longer than the formula says.
TEST_F(Pipelines, ExplainPrintsAFormulaOnlyWhereItHolds) {
  const Flags flags{"--explain", "--smoke", "--ranks", "4", "--schedule", "foldx_aiao", "--balance", "layers"};
  const Outcome few = run(kInterleaved, joined(flags, {"--microbatches", "1", "--chunks", "3"}));
  ASSERT_EQ(few.exit_code, 0) << few.err;
  EXPECT_NE(few.out.find("idle            75.0% of the step"), std::string::npos) << few.out;
  EXPECT_NE(few.out.find("none here: (p - 1) / (v m + p - 1) holds for m >= p"), std::string::npos) << few.out;
  EXPECT_EQ(few.out.find("50.0%"), std::string::npos) << few.out;
  const Outcome enough = run(kInterleaved, joined(flags, {"--microbatches", "4", "--chunks", "3"}));
  EXPECT_NE(enough.out.find("(p - 1) / (v m + p - 1) = 20.0%"), std::string::npos) << enough.out;
}

TEST_F(Pipelines, ExplainAStepOfTheImagesThatThereAre) {
  make_data(20, 10);
  const Flags common{"--explain", "--data",  "data", "--model",        "vit", "--depth",     "2", "--width",
                     "16",        "--heads", "2",    "--microbatches", "2",   "--batch-size"};
  const std::vector<std::pair<std::string, Flags>> commands{
      {kCh01, {}},
      {kCh03, {"--ranks", "2", "--balance", "layers"}},
      {kCh06, {"--ranks", "2"}},
      {kCh06, {"--mesh", "dp=2,pp=2", "--balance", "layers"}},
      {kCh07, {"--ranks", "2", "--balance", "layers"}},
      {kCh08, {"--mesh", "dp=2,pp=2,tp=2", "--balance", "layers"}}};
  for (const auto& command : commands) {
    const auto explained = [&](const std::string& batch) {
      const Outcome plan = run(command.first, joined(joined(common, {batch}), command.second));
      EXPECT_EQ(plan.exit_code, 0) << plan.err;
      return plan.out;
    };
    EXPECT_EQ(explained("64"), explained("20")) << command.first;
    EXPECT_NE(explained("20"), explained("10")) << command.first;
  }
}

TEST_F(Pipelines, ExplainNamesTheStageThatHoldsUpTheOthers) {
  const Flags flags{"--explain", "--smoke", "--split", "11,1", "--schedule", "1f1b", "--microbatches", "4"};
  const Outcome measured = run(kInterleaved, joined(flags, {"--profile", "--clock", "virtual"}));
  ASSERT_EQ(measured.exit_code, 0) << measured.err;
  EXPECT_NE(measured.out.find("bottleneck      rank 0, with stage 0: it works "), std::string::npos) << measured.out;
  EXPECT_EQ(run(kInterleaved, flags).out.find("bottleneck"), std::string::npos) << "in units all stages are equal";
}

TEST_F(Pipelines, HelpSaysWhatTheSchedulesAre) {
  const Outcome help = run(kInterleaved, {"--help"});
  ASSERT_EQ(help.exit_code, 0) << help.err;
  for (const ScheduleKind& kind : schedule_kinds()) {
    EXPECT_NE(help.out.find(fmt::format("  {:<14} {}\n", kind.name, kind.summary)), std::string::npos) << kind.name;
  }
}

TEST_F(Pipelines, BadSettingsAreRefusedWithWhatCanBe) {
  const Flags smoke{"--smoke", "--balance", "layers"};
  const auto with = [&](Flags flags) {
    flags.insert(flags.end(), smoke.begin(), smoke.end());
    return flags;
  };
  expect_refused(kGpipe, with({"--microbatches", "65"}), {"--microbatches 65", "64 images", "at most 64"});
  expect_refused(kGpipe, with({"--ranks", "13"}), {"12 layers", "13 stages", "at most 12"});
  expect_refused(kGpipe, with({"--chunks", "2"}), {"--chunks", "ch03_gpipe", "chapter 5"});
  expect_refused(kNaive, with({"--microbatches", "2"}), {"--microbatches", "ch02_naive_model_parallel"});
  expect_refused(kNaive, with({"--recompute"}), {"--recompute", "chapter 3"});
  expect_refused(kInterleaved, with({"--ranks", "4", "--microbatches", "6"}), {"micro-batches", "4"});
  expect_refused(kInterleaved, with({"--ranks", "4", "--microbatches", "8", "--group", "3"}), {"group", "3", "4"});
  expect_refused(kInterleaved, with({"--ranks", "4", "--microbatches", "10"}), {"--group 5", "8 or 12"});
  expect_refused(kInterleaved, with({"--schedule", "1f1b", "--chunks", "2"}), {"1f1b", "chunks"});
  expect_refused(kInterleaved, with({"--schedule", "zbv", "--chunks", "3"}), {"zbv", "two stages", "got 3"});
  expect_refused(kInterleaved, with({"--schedule", "zbv", "--chunks", "1"}), {"zbv", "two stages", "got 1"});
  expect_refused(kInterleaved, with({"--schedule", "dualpipev", "--group", "4"}), {"dualpipev", "no groups"});
  expect_refused(kInterleaved, with({"--schedule", "dreampipe"}),
                 {"dreampipe", "unknown schedule", "zb-h1", "or a file"});
  expect_refused(kInterleaved, with({"--schedule", std::string(300, 'x')}), {"xxx", "unknown schedule", "or a file"});
  expect_refused(kGpipe, {"--smoke", "--split", "5,6"}, {"5,6", "12 layers in all, got 11"});
  expect_refused(kGpipe, {"--smoke", "--split", "4,4,4"}, {"4,4,4", "expected 2 stages", "got 3"});
  expect_refused(kGpipe, with({"--link", "pcie4"}), {"--link: the wall clock", "--clock virtual"});
  expect_refused(kGpipe, with({"--clock", "virtual", "--link", "string"}), {"'string' is not a link", "ethernet100"});
  expect_refused(kGpipe, with({"--clock", "virtual", "--threads", "2"}), {"--threads 2", "one core"});
  expect_refused(kGpipe, with({"--timeout", "0"}), {"--timeout", "got '0'"});
  expect_refused(kGpipe, with({"--schedule", "1f1b"}), {"1f1b", "gpipe, by-hand", "ch03_gpipe"});
  expect_refused(kInterleaved, with({"--schedule", "1f1b", "--group", "2"}), {"1f1b", "no groups"});
  expect_refused(kGpipe, with({"--device", "cuda:1"}), {"cuda:1"});
  expect_refused(kGpipe, with({"--tf32"}), {"--tf32"});
  expect_refused(kNaive, {"--model", "toy", "--ranks", "3"}, {"toy", "two ranks"});
  expect_refused(kGpipe, with({"--transport", "pigeon"}), {"pigeon"});
}

TEST_F(Pipelines, ARankThatWaitsTooLongEndsTheRun) {
  const Outcome outcome = run(kGpipe, {"--smoke", "--timeout", "0.000001", "--balance", "layers"});
  EXPECT_EQ(outcome.exit_code, 4) << outcome.err;
  EXPECT_NE(outcome.err.find("rank "), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("--timeout"), std::string::npos) << outcome.err;
}

// The loss is known on the last rank, which has no folder of its own.
TEST_F(Pipelines, ADivergedRunSaysWhatIsSaved) {
  make_data(96, 32);
  const Outcome outcome = train(kGpipe, "run", {"--lr", "1e30", "--balance", "layers"});
  EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
  EXPECT_NE(outcome.err.find("diverged"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("remain in run"), std::string::npos) << outcome.err;
}

TEST_F(Pipelines, ResumeWithAnotherSchedule) {
  make_data(96, 32);
  ASSERT_EQ(train(kCh01, "one", {"--microbatches", "4"}, "2").exit_code, 0);
  ASSERT_EQ(train(kInterleaved, "run", {"--split", "3,3,3,3", "--microbatches", "4"}, "1").exit_code, 0);
  const Outcome outcome = run(kInterleaved, {"--resume", "run", "--epochs", "2", "--schedule", "1f1b"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  expect_same_training("run", "one");
}

TEST_F(Pipelines, GoOnAfterAnInterruptAlsoWithOtherRanks) {
  make_data(400, 40);
  const Flags flags{"--microbatches", "4", "--optimizer", "adam", "--balance", "layers"};
  ASSERT_EQ(train(kGpipe, "whole", flags, "4").exit_code, 0);
  for (const std::string ranks : {"2", "3", "4"}) {
    const std::string out = "on-" + ranks;
    const std::string when = ranks == "3" ? "  microbatches " : "Epoch: 1,";  // within the first epoch, or behind it
    const Outcome stopped = interrupt(
        kGpipe, joined({"--data", "data", "--batch-size", "32", "--epochs", "4", "--ranks", "4", "--out", out}, flags),
        when);
    ASSERT_EQ(stopped.exit_code, 130) << stopped.err;
    EXPECT_NE(stopped.out.find("Saved"), std::string::npos) << stopped.out;
    expect_went_on(stopped, run(kGpipe, {"--resume", out, "--ranks", ranks}));
    expect_same_training(out, "whole");
  }
}

// As by Ctrl-Z, a debugger, or a virtual machine that is paused.
TEST_F(Pipelines, GoOnAfterTheyStoodStillForLongerThanATimeout) {
  make_data(400, 40);
  Running running(
      kGpipe, {"--data", "data", "--batch-size", "32", "--epochs", "100000", "--balance", "layers", "--timeout", "5"},
      folder());
  const auto wait_for_an_epoch = [&] {
    const std::size_t before = running.out().size();
    while (running.out().find("Epoch: ", before) == std::string::npos && !running.ended()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  };
  wait_for_an_epoch();
  running.signal(SIGSTOP);
  std::this_thread::sleep_for(std::chrono::seconds(6));  // longer than the timeout
  running.signal(SIGCONT);
  wait_for_an_epoch();
  running.signal(SIGINT);
  const Outcome stopped = running.wait();
  EXPECT_EQ(stopped.exit_code, 130) << stopped.out << stopped.err;
}

// 1F1B's first stage holds as many micro-batches as there are ranks, GPipe's all of them, and with recomputation only
// what enters and leaves.
TEST_F(Pipelines, MemoryFollowsTheSchedule) {
  make_data(256, 32);
  const Flags flags{"--batch-size", "256", "--epochs", "1", "--microbatches", "16", "--split", "3,9"};
  const auto first_rank = [&](const std::string& out, Flags more) {
    more.insert(more.begin(), flags.begin(), flags.end());
    more.insert(more.begin(), {"--data", "data", "--out", out});
    const Outcome outcome = run(kInterleaved, more);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return metrics(out)[0]["peak_bytes"][0].get<double>();
  };
  const double gpipe = first_rank("gpipe", {"--schedule", "gpipe"});
  const double one_f_one_b = first_rank("1f1b", {"--schedule", "1f1b"});
  const double recomputed = first_rank("again", {"--schedule", "gpipe", "--recompute"});
  // A micro-batch of 16 images keeps, on the first stage: the images, the convolution's output, relu's (in its
  // place or beside it), which pixels won, and the pooled output.
  const double kept = 16 * (3 * 32 * 32 + 6 * 28 * 28 + 6 * 14 * 14) * 4.0;
  EXPECT_GT(gpipe - one_f_one_b, 0.95 * (16 - 2) * kept);
  EXPECT_LT(gpipe - one_f_one_b, 1.6 * (16 - 2) * kept);
  const double entering_and_leaving = 16 * (3 * 32 * 32 + 6 * 14 * 14) * 4.0;
  EXPECT_GT(gpipe - recomputed, 0.9 * 15 * (kept - entering_and_leaving));
}

// A backward takes 3 units instead of 2, as it runs the forward again.
TEST_F(Pipelines, ExplainTheTimeOfRecomputation) {
  const auto explained = [&](const std::string& program, const Flags& more) {
    return run(program, joined({"--smoke", "--ranks", "2", "--microbatches", "4", "--balance", "layers", "--explain",
                                "--recompute"},
                               more))
        .out;
  };
  for (const auto& [schedule, units, formula] :
       {std::tuple("gpipe", "20 units", "(p - 1) / (m + p - 1) = 20.0%"),
        {"1f1b", "20 units", "= 20.0%"},
        {"zb-h1", "18 units", "none here: (p - 1) / (3 m + p - 1) holds without --recompute"}}) {
    const std::string text = explained(kInterleaved, {"--schedule", schedule});
    EXPECT_NE(text.find("where a forward takes 1 and a backward 3, as it runs the forward again"), std::string::npos)
        << text;
    EXPECT_NE(text.find(units), std::string::npos) << text;
    EXPECT_NE(text.find(formula), std::string::npos) << text;
  }
  const std::string stream = explained(kCh04, {});
  EXPECT_NE(stream.find("1 per rank of its stage, and a backward 3, as it runs"), std::string::npos) << stream;
}

}  // namespace
}  // namespace stagecoach::test
