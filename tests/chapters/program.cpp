#include "tests/chapters/program.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>

namespace stagecoach::test {

namespace fs = std::filesystem;

Running::Running(const std::string& program, const std::vector<std::string>& arguments, const fs::path& folder) {
  static std::atomic<int> count = 0;
  const std::string stem = "output-" + std::to_string(count++);
  out_ = folder / (stem + ".out");
  err_ = folder / (stem + ".err");
  std::vector<char*> argv;
  argv.push_back(const_cast<char*>(program.c_str()));
  for (const std::string& argument : arguments) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);
  process_ = ::fork();
  if (process_ == 0) {
    const int out = ::open(out_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    const int err = ::open(err_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (out < 0 || err < 0 || ::dup2(out, 1) < 0 || ::dup2(err, 2) < 0 || ::chdir(folder.c_str()) != 0) {
      ::_exit(126);
    }
    ::execv(program.c_str(), argv.data());
    ::_exit(127);
  }
}

Running::~Running() {
  if (process_ > 0) {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
}

void Running::signal(int number) { ::kill(process_, number); }

std::string Running::out() const { return read_bytes(out_); }

bool Running::ended() const {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(process_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0;
}

Outcome Running::wait() {
  int status = 0;
  ::waitpid(process_, &status, 0);
  process_ = -1;
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read_bytes(out_), read_bytes(err_)};
}

Outcome ProgramTest::run(const std::string& program, const std::vector<std::string>& arguments) {
  return Running(program, arguments, folder()).wait();
}

Outcome ProgramTest::ch01(const std::vector<std::string>& arguments) { return run(kCh01, arguments); }

Outcome ProgramTest::shell(const std::string& line) { return run("/bin/sh", {"-c", line}); }

void ProgramTest::make_data(int train, int test) {
  const Outcome outcome = run(kMakeData, {"data", "--train", std::to_string(train), "--test", std::to_string(test)});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
}

}  // namespace stagecoach::test
