#pragma once
/// @file
/// Runs the chapter programs as their users do, each test in a folder of its own.

#include <gtest/gtest.h>
#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/files.h"
#include "tests/support/program_path.h"

namespace stagecoach::test {

inline const std::string kCh01 = program_path("ch01_single_device");
inline const std::string kCh02 = program_path("ch02_naive_model_parallel");
inline const std::string kCh03 = program_path("ch03_gpipe");
inline const std::string kCh04 = program_path("ch04_pipedream");
inline const std::string kCh05 = program_path("ch05_interleaved");
inline const std::string kCh06 = program_path("ch06_ddp");
inline const std::string kCh07 = program_path("ch07_one_controller");
inline const std::string kCh08 = program_path("ch08_tensor_parallel");
inline const std::string kCh09 = program_path("ch09_sharded_data_parallel");
inline const std::string kCompare = program_path("compare");
inline const std::string kMakeData = program_path("make_generated_data");

struct Outcome {
  int exit_code = -1;  ///< 128 + signal when a signal ended it
  std::string out;
  std::string err;
};

/// A program that was started and not yet waited for.
class Running {
 public:
  Running(const std::string& program, const std::vector<std::string>& arguments, const std::filesystem::path& folder);
  ~Running();
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  void signal(int number);
  /// What it printed so far.
  std::string out() const;
  /// Whether it has ended.
  bool ended() const;
  Outcome wait();

 private:
  pid_t process_ = -1;
  std::filesystem::path out_;
  std::filesystem::path err_;
};

/// A test with an empty folder, which is removed at its end, and with programs to run in it.
class ProgramTest : public ::testing::Test {
 protected:
  /// Runs chapter 1 with these flags; relative paths are relative to folder().
  Outcome ch01(const std::vector<std::string>& arguments);
  Outcome run(const std::string& program, const std::vector<std::string>& arguments);
  /// Runs a line of shell in folder().
  Outcome shell(const std::string& line);
  /// Writes a small generated data set to folder()/data.
  void make_data(int train, int test);
  const std::filesystem::path& folder() const { return folder_.path(); }

 private:
  TemporaryFolder folder_;
};

}  // namespace stagecoach::test
