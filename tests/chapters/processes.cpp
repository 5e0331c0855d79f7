#include "tests/chapters/processes.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "parallel/launch/transports.h"

namespace stagecoach::test {
namespace {

namespace fs = std::filesystem;

constexpr int kMostRanks = 16;

/// The names of what processes share by MPI; other programs come and go there too.
std::vector<std::string> shared_memory() {
  std::vector<std::string> names;
  std::error_code is_no_matter;
  for (const fs::directory_entry& entry : fs::directory_iterator("/dev/shm", is_no_matter)) {
    const std::string name = entry.path().filename().string();
    if (name.find("vader") != std::string::npos || name.find("mpi") != std::string::npos) {
      names.push_back(name);
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// Whether a process runs; one that has ended and that nobody has asked about does not.
bool runs(pid_t process) {
  if (!fs::exists("/proc/self")) {
    return ::kill(process, 0) == 0;  // its parent asks about it soon
  }
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string state;
  std::getline(file, state);  // nothing, when it ends just now
  const auto name_end = state.rfind(") ");
  return name_end != std::string::npos && state.at(name_end + 2) != 'Z' && state.at(name_end + 2) != 'X';
}

template <class Done>
bool in_a_minute(const Done& done) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!done() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return done();
}

}  // namespace

void ProcessTest::SetUp() {
#ifndef STAGECOACH_MPIRUN
  if (launcher_ == Launcher::mpirun) {
    GTEST_SKIP() << "this build has no MPI";
  }
#endif
  if (launcher_ == Launcher::torchrun && !gloo_ranks::is_built_in()) {
    GTEST_SKIP() << "this build has no Gloo";
  }
  // As root, and with more processes than cores: mpirun refuses both unless it is told.
  ::setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
  ::setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  ::setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 1);
  shared_memory_before_ = shared_memory();
}

bool ProcessTest::a_rank_runs() const {
  for (int rank = 0; rank < ranks_; ++rank) {
    const std::string note = read_bytes(folder() / ("pid_" + std::to_string(rank)));
    if (!note.empty() && runs(static_cast<pid_t>(std::stol(note)))) {
      return true;
    }
  }
  return false;
}

Outcome ProcessTest::end(Running& running) const {
  constexpr std::chrono::seconds kPatience(15);
  auto last_seen = std::chrono::steady_clock::now();
  while (!running.ended()) {
    const auto now = std::chrono::steady_clock::now();
    last_seen = a_rank_runs() ? now : last_seen;
    if (now - last_seen > kPatience) {
      running.signal(SIGKILL);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return running.wait();
}

void ProcessTest::expect_nothing_left() {
  if (ranks_ == 0) {
    return;  // nothing was started
  }
  EXPECT_TRUE(in_a_minute([&] { return !a_rank_runs(); })) << "a rank still runs";
  EXPECT_TRUE(in_a_minute([&] {
    const std::vector<std::string> now = shared_memory();
    return std::includes(shared_memory_before_.begin(), shared_memory_before_.end(), now.begin(), now.end());
  })) << "shared memory stayed behind";
}

Running ProcessTest::start(int ranks, const std::string& program, const Flags& flags) {
#ifdef STAGECOACH_MPIRUN
  const std::string mpirun = STAGECOACH_MPIRUN;
#else
  const std::string mpirun;
#endif
  ranks_ = ranks;
  for (int rank = 0; rank < kMostRanks; ++rank) {  // an earlier start may have had more
    fs::remove(folder() / ("pid_" + std::to_string(rank)));
    fs::remove(folder() / ("code_" + std::to_string(rank)));
  }
  // A shell notes how its program ends. It outlives the program's end by mpirun, which asks twice. Programs that were
  // asked to stop (130) each end by themselves, so their shells wait for each other: two seconds after the first one
  // mpirun would kill the others, which on a busy machine are still saving.
  const std::string note =
      "trap '' TERM USR1; r=${OMPI_COMM_WORLD_RANK:-$RANK}; \"$@\" & p=$!; echo $p > pid.$p; mv pid.$p pid_$r; wait "
      "$p; "
      "c=$?; echo $c > code_$r; i=0; while [ $c = 130 ] && [ $i -lt 300 ] && "
      "[ $(ls code_* | wc -l) -lt ${OMPI_COMM_WORLD_SIZE:-$WORLD_SIZE} ]; do sleep 0.1; i=$((i + 1)); done; exit $c";
  const Flags noted = joined({"/bin/sh", "-c", note, "sh", program}, flags);
  if (launcher_ == Launcher::torchrun) {
    return Running(STAGECOACH_START_RANKS, joined({std::to_string(ranks)}, noted), folder());
  }
  return Running(mpirun, joined({"-np", std::to_string(ranks)}, noted), folder());
}

pid_t ProcessTest::process(int rank) {
  const fs::path note = folder() / ("pid_" + std::to_string(rank));
  in_a_minute([&] { return fs::exists(note); });
  return static_cast<pid_t>(std::stol("0" + read_bytes(note)));
}

int ProcessTest::code(int rank) {
  const fs::path note = folder() / ("code_" + std::to_string(rank));
  return fs::exists(note) ? std::stoi("0" + read_bytes(note)) : -1;
}

bool ProcessTest::prints(const Running& running, const std::string& text) {
  return in_a_minute([&] { return running.out().find(text) != std::string::npos; });
}

}  // namespace stagecoach::test
