#include "chapters/common/exit_code.h"

#include <fmt/core.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <new>

#include "chapters/common/name_flags.h"
#include "core/base/memory_limits.h"
#include "core/base/printable.h"
#include "core/base/throw_if.h"

namespace stagecoach {
namespace {

int report(const std::string& program, const std::exception& error, int exit_code) {
  std::fflush(stdout);
  std::fputs(fmt::format("{}: {}\n", program, printable(name_flags(error.what()))).c_str(),
             stderr);  // if it is closed, the exit code still reports the error
  return exit_code;
}

/// Reports the error without allocating memory.
int report_out_of_memory(const char* program) {
  std::fprintf(stderr,
               "%s: out of memory; raise the limit (ulimit -v), or use a smaller batch (--batch-size) or model\n",
               program);
  return 4;
}

std::terminate_handler terminate_before = nullptr;
const char* program_name = "";  // of the caller of with_exit_code, for as long as that runs

/// Replaces the terminate handler, for when memory runs out in a `noexcept` function of a library.
[[noreturn]] void end_in_order() {
  static std::atomic_flag is_ending;
  while (is_ending.test_and_set()) {
    ::pause();  // another thread is already ending the program
  }
  if (has_memory_run_out()) {  // the exception itself is not always available here
    std::_Exit(report_out_of_memory(program_name));
  }
  terminate_before();  // a bug in the program
  std::abort();
}

}  // namespace

int with_exit_code(const std::string& program, const std::function<int()>& body) {
  keep_memory_reserve();
  program_name = program.c_str();
  terminate_before = std::set_terminate(end_in_order);
  std::signal(SIGXFSZ, SIG_IGN);  // so that a write beyond `ulimit -f` fails as on a full disk
  try {
    const int exit_code = body();
    throw_if<DataError>(std::fflush(stdout) != 0 || std::ferror(stdout) != 0,
                        "cannot write to standard output; all output files are complete");
    return exit_code;
  } catch (const UsageError& error) {
    return report(program, error, 2);
  } catch (const DataError& error) {
    return report(program, error, 3);
  } catch (const std::filesystem::filesystem_error& error) {
    const std::string path = error.path1().string();
    return report(
        program, DataError(fmt::format("{}: {}; check the path and its permissions", path, error.code().message())), 3);
  } catch (const std::bad_alloc&) {
    std::fflush(stdout);
    return report_out_of_memory(program.c_str());
  } catch (const std::exception& error) {
    return report(program, error, 4);
  }
}

}  // namespace stagecoach
