#pragma once
/// @file
/// Runs chapters that train in a pipeline, and looks at what they leave.

#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <regex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/chapters/program.h"
#include "tests/support/sanitized.h"

namespace stagecoach::test {

using Flags = std::vector<std::string>;
using Json = nlohmann::json;

inline Flags joined(Flags flags, const Flags& more) {
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

class PipelineTest : public ProgramTest {
 protected:
  /// Runs `program` on the small data set with --out `out`.
  Outcome train(const std::string& program, const std::string& out, const Flags& more,
                const std::string& epochs = "2") {
    return run(program, joined({"--data", "data", "--batch-size", "32", "--epochs", epochs, "--out", out}, more));
  }
  /// Makes a data set of a few batches of 32 images and a last one of 9.
  void make_ragged_data() { make_data(unless_sanitized(105, 41), unless_sanitized(40, 12)); }
  /// Starts `program`, interrupts it when it has printed `text`, and waits for its end.
  Outcome interrupt(const std::string& program, const Flags& flags, const std::string& text = "Epoch: 1,") {
    Running running(program, flags, folder());
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(2);
    while (running.out().find(text) == std::string::npos && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    running.signal(SIGINT);
    return running.wait();
  }
  /// Checks that `resumed` went on at the very step at which `stopped` was interrupted.
  static void expect_went_on(const Outcome& stopped, const Outcome& resumed) {
    ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
    std::smatch at;
    ASSERT_TRUE(std::regex_search(stopped.out, at, std::regex("Interrupted in epoch ([0-9]+), step ([0-9]+)")))
        << stopped.out << stopped.err;
    EXPECT_NE(resumed.out.find("Continues in epoch " + at.str(1) + " after " + at.str(2) + " steps"), std::string::npos)
        << stopped.out << resumed.out;
  }
  std::string bytes(const std::string& file) { return read_bytes(folder() / file); }
  /// Returns what a plan says of its step, without the settings that it follows from.
  Json planned_step(const std::string& plan) {
    Json step = Json::parse(bytes(plan + "/prediction.json"));
    EXPECT_EQ(step.erase("settings"), 1U);
    return step;
  }
  /// Checks that the run in `out` has the weights of the one in `wanted`, and its losses and accuracies.
  void expect_same_training(const std::string& out, const std::string& wanted) {
    EXPECT_TRUE(bytes(out + "/weights.safetensors") == bytes(wanted + "/weights.safetensors")) << out;
    const auto mine = metrics(out);
    const auto theirs = metrics(wanted);
    ASSERT_EQ(mine.size(), theirs.size());
    for (std::size_t i = 0; i < mine.size(); ++i) {
      for (const char* key : {"loss", "acc", "test_acc"}) {
        EXPECT_EQ(mine[i][key], theirs[i][key]) << out << ", " << key << " of epoch " << i + 1;
      }
    }
  }
  /// Checks the same of runs whose losses are summed in different orders.
  void expect_same_weights(const std::string& out, const std::string& wanted) {
    EXPECT_TRUE(bytes(out + "/weights.safetensors") == bytes(wanted + "/weights.safetensors")) << out;
    const auto mine = metrics(out);
    const auto theirs = metrics(wanted);
    ASSERT_EQ(mine.size(), theirs.size());
    for (std::size_t i = 0; i < mine.size(); ++i) {
      EXPECT_EQ(mine[i]["acc"], theirs[i]["acc"]) << out;
      EXPECT_EQ(mine[i]["test_acc"], theirs[i]["test_acc"]) << out;
      EXPECT_NEAR(mine[i]["loss"].get<double>(), theirs[i]["loss"].get<double>(), 1e-5) << out;  // summed rank by rank
    }
  }
  std::vector<Json> metrics(const std::string& run) {
    std::vector<Json> lines;
    std::istringstream text(bytes(run + "/metrics.jsonl"));
    for (std::string line; std::getline(text, line);) {
      lines.push_back(Json::parse(line));
    }
    return lines;
  }
  std::string write(const std::string& name, const std::string& text) {
    write_bytes(folder() / name, text);
    return name;
  }
  void expect_refused(const std::string& program, const Flags& flags, const std::vector<std::string>& parts) {
    const Outcome outcome = run(program, flags);
    EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
    for (const std::string& part : parts) {
      EXPECT_NE(outcome.err.find(part), std::string::npos) << "'" << part << "' is not in: " << outcome.err;
    }
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  }
};

}  // namespace stagecoach::test
