#include "chapters/common/exit_code.h"

#include <fmt/core.h>

#include <csignal>
#include <cstdio>
#include <new>

#include "core/error.h"

namespace stagecoach {
namespace {

// Allocates nothing: there may be no memory left.
int report(const std::string& program, const char* what, int exit_code) {
  std::fflush(stdout);
  std::fprintf(stderr, "%s: %s\n", program.c_str(), what);
  return exit_code;
}

}  // namespace

int with_exit_code(const std::string& program, const std::function<int()>& body) {
  std::signal(SIGXFSZ, SIG_IGN);  // a write beyond `ulimit -f` then fails as on a full disk
  try {
    const int exit_code = body();
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
      throw DataError("standard output cannot be written; the files that were asked for are complete");
    }
    return exit_code;
  } catch (const UsageError& error) {
    return report(program, error.what(), 2);
  } catch (const DataError& error) {
    return report(program, error.what(), 3);
  } catch (const std::bad_alloc&) {
    return report(program, "out of memory; raise the limit (ulimit -v), or use a smaller batch or model", 4);
  } catch (const std::exception& error) {
    return report(program, error.what(), 4);
  }
}

}  // namespace stagecoach
