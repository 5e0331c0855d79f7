/// @file
/// Runs a fuzz target where there is no libFuzzer: with every input of its corpus, then with as many mutated ones as
/// are asked for. A child process reads them; it may crash, and what it was at stays known, as inputs are made from
/// their number alone. An input that is a find is written to a file, which this program takes in place of a corpus.

#include <CLI/CLI.hpp>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "tests/fuzz/memory_limit.h"
#include "tests/fuzz/mutator.h"
#include "tests/fuzz/target.h"
#include "tests/support/files.h"

namespace stagecoach::fuzz {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxFinds = 20;

struct Options {
  std::vector<std::string> corpora;
  std::string dictionary;
  std::string finds = ".";
  std::uint64_t runs = 0;
  std::uint64_t seed = 1;
  std::size_t mebibytes = 256;
  unsigned seconds = 60;  // against hangs only
};

Options options_from(int argc, char** argv) {
  Options options;
  CLI::App app("Calls a reader with inputs that nobody meant for it.");
  app.add_option("CORPUS", options.corpora, "Inputs to begin with: files, or folders of files")->required();
  app.add_option("--runs", options.runs, "Mutated inputs to try")->capture_default_str();
  app.add_option("--seed", options.seed, "Another seed gives other inputs")->capture_default_str();
  app.add_option("--dictionary", options.dictionary, "Words of the format, as libFuzzer's -dict takes them");
  app.add_option("--finds", options.finds, "Folder for inputs that are finds")->capture_default_str();
  app.add_option("--mebibytes", options.mebibytes, "Memory that the reader may take")->capture_default_str();
  app.add_option("--seconds", options.seconds, "An input that takes longer counts as a hang")->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error));
  }
  return options;
}

std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    throw DataError(fmt::format("{}: cannot be read", path.string()));
  }
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The files in the order of their names.
std::vector<std::string> read_corpora(const std::vector<std::string>& corpora) {
  std::vector<std::string> inputs;
  for (const std::string& corpus : corpora) {
    std::vector<fs::path> files{corpus};
    if (fs::is_directory(corpus)) {
      files.assign(fs::directory_iterator(corpus), {});
      std::sort(files.begin(), files.end());
    }
    for (const fs::path& file : files) {
      inputs.push_back(bytes_of(file));
    }
  }
  return inputs;
}

/// A number that a child process writes and its parent reads, also when the child is dead.
class SharedNumber {
 public:
  SharedNumber()
      : memory_(::mmap(nullptr, sizeof(std::uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    STAGECOACH_CHECK(memory_ != MAP_FAILED, "fuzz: no shared memory: {}", std::strerror(errno));
  }
  ~SharedNumber() { ::munmap(memory_, sizeof(std::uint64_t)); }
  SharedNumber(const SharedNumber&) = delete;
  SharedNumber& operator=(const SharedNumber&) = delete;
  volatile std::uint64_t& value() { return *static_cast<volatile std::uint64_t*>(memory_); }

 private:
  void* memory_;
};

/// What the child does: reads the inputs from number `next` up to `end`. An exception that the target lets out ends it.
[[noreturn]] void read_inputs(const Mutator& mutator, const Options& options, SharedNumber& next,
                              std::uint64_t end) noexcept {
  limit_memory(options.mebibytes << 20U);
  for (std::uint64_t index = next.value(); index < end; ++index) {
    next.value() = index;
    const std::string input = mutator.input(index);
    ::alarm(options.seconds);
    static_cast<void>(LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size()));
  }
  next.value() = end;
  ::alarm(0);
  std::exit(0);  // and the leak sanitizer looks at what is left
}

/// Why a child ended that did not end well.
std::optional<std::string> failure_of(int status) {
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) {
    return "did not end in time";
  }
  if (WIFSIGNALED(status)) {
    return fmt::format("ended with signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status)));
  }
  return WEXITSTATUS(status) == 0 ? std::nullopt : std::optional(fmt::format("exit code {}", WEXITSTATUS(status)));
}

std::string write_find(const Options& options, const std::string& program, const std::string& input,
                       std::uint64_t index) {
  fs::create_directories(options.finds);
  const fs::path path = fs::path(options.finds) / fmt::format("{}-seed-{}-{}", program, options.seed, index);
  std::ofstream(path, std::ios::binary) << input;
  return path.string();
}

int run(int argc, char** argv) {
  const Options options = options_from(argc, argv);
  const std::string program = fs::path(argv[0]).filename().string();
  const std::vector<std::string> words = options.dictionary.empty()
                                             ? std::vector<std::string>{}
                                             : words_from_text(bytes_of(options.dictionary), options.dictionary);
  const Mutator mutator(read_corpora(options.corpora), words, options.seed);
  const std::uint64_t end = mutator.corpus_size() + options.runs;
  const auto began = std::chrono::steady_clock::now();
  const test::TemporaryFolder scratch;  // a child that dies leaves its files there
  ::setenv("TMPDIR", scratch.path().c_str(), 1);
  SharedNumber next;
  int finds = 0;
  while (next.value() < end && finds < kMaxFinds) {
    const pid_t child = ::fork();
    STAGECOACH_CHECK(child >= 0, "fuzz: no child process: {}", std::strerror(errno));
    if (child == 0) {
      read_inputs(mutator, options, next, end);
    }
    int status = 0;
    STAGECOACH_CHECK(::waitpid(child, &status, 0) == child, "fuzz: the child is lost: {}", std::strerror(errno));
    const auto failure = failure_of(status);
    if (!failure) {
      break;
    }
    ++finds;
    const std::uint64_t index = next.value();
    if (index == end) {
      fmt::print("FIND: after all inputs: {}\n", *failure);
      break;
    }
    fmt::print("FIND: input {}: {}; run {} {}\n", index, *failure, program,
               write_find(options, program, mutator.input(index), index));
    next.value() = index + 1;
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - began;
  fmt::print("{}: {} inputs, {:.1f} s, {} finds\n", program, next.value(), seconds.count(), finds);
  return finds == 0 ? 0 : 1;
}

}  // namespace
}  // namespace stagecoach::fuzz

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // a child must not have a copy of what is not yet printed
  try {
    return stagecoach::fuzz::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 4;
  }
}
