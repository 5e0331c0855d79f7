#include "parallel/training/exit_code.h"

#include <fmt/core.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <new>

#include "core/base/memory_limits.h"
#include "core/base/printable.h"
#include "core/base/throw_if.h"
#include "parallel/training/stop_protocol.h"

namespace stagecoach {
namespace {

std::string out_of_memory_text;  // of the caller of with_exit_code: when it is needed, no memory can be allocated

int report(const std::string& text, int exit_code) {
  std::fflush(stdout);
  std::fputs(text.c_str(), stderr);  // if it is closed, the exit code still reports the error
  return exit_code;
}

std::terminate_handler terminate_before = nullptr;

/// Replaces the terminate handler, for when memory runs out in a `noexcept` function of a library.
[[noreturn]] void terminate_cleanly() {
  static std::atomic_flag is_ending;
  while (is_ending.test_and_set()) {
    ::pause();  // another thread is already ending the program
  }
  if (has_memory_run_out()) {  // the exception itself is not always available here
    std::fputs(out_of_memory_text.c_str(), stderr);
    std::_Exit(4);
  }
  terminate_before();  // a bug in the program
  std::abort();
}

}  // namespace

int with_exit_code(const std::string& program, const std::function<int()>& body,
                   const std::function<std::string(std::string)>& translate) {
  const auto line = [&](const std::string& text) {
    return fmt::format("{}: {}\n", program, printable(translate ? translate(text) : text));
  };
  out_of_memory_text = line("out of memory; raise the limit (ulimit -v), or use a smaller batch or model");
  keep_memory_reserve();
  terminate_before = std::set_terminate(terminate_cleanly);
  std::signal(SIGXFSZ, SIG_IGN);  // so that a write beyond `ulimit -f` fails as on a full disk
  try {
    const int exit_code = body();
    throw_if<DataError>(std::fflush(stdout) != 0 || std::ferror(stdout) != 0,
                        "cannot write to standard output; all output files are complete");
    return exit_code;
  } catch (const Interrupted&) {
    return 130;
  } catch (const UsageError& error) {
    return report(line(error.what()), 2);
  } catch (const DataError& error) {
    return report(line(error.what()), 3);
  } catch (const std::filesystem::filesystem_error& error) {
    return report(
        line(fmt::format("{}: {}; check the path and its permissions", error.path1().string(), error.code().message())),
        3);
  } catch (const std::bad_alloc&) {
    return report(out_of_memory_text, 4);
  } catch (const std::exception& error) {
    return report(line(error.what()), 4);
  }
}

}  // namespace stagecoach
