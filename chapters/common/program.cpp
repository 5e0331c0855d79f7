#include "chapters/common/program.h"

#include <fmt/core.h>

#include <cstdio>

#include "core/error.h"

namespace stagecoach {
namespace {

int report(const Chapter& chapter, const std::exception& error, int exit_code) {
  std::fflush(stdout);
  fmt::print(stderr, "{}: {}\n", chapter.program, error.what());
  return exit_code;
}

}  // namespace

int run_program(int argc, const char* const* argv, const Chapter& chapter, void (*body)(const Settings&)) {
  try {
    body(parse_flags(argc, argv, chapter));
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
      throw DataError("standard output cannot be written; what --out names is complete");
    }
    return 0;
  } catch (const HelpShown&) {
    return 0;
  } catch (const Interrupted&) {
    return 130;
  } catch (const UsageError& error) {
    return report(chapter, error, 2);
  } catch (const DataError& error) {
    return report(chapter, error, 3);
  } catch (const std::exception& error) {
    return report(chapter, error, 4);
  }
}

}  // namespace stagecoach
