#include "chapters/common/exit_code.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "core/error.h"

namespace stagecoach {
namespace {

/// An error is one line, and moves no cursor, whatever texts of the user or of a file it quotes.
std::string on_one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return text;
}

int report(const std::string& program, const std::exception& error, int exit_code) {
  std::fflush(stdout);
  fmt::print(stderr, "{}: {}\n", program, on_one_line(error.what()));
  return exit_code;
}

}  // namespace

int with_exit_code(const std::string& program, const std::function<int()>& body) {
  try {
    const int exit_code = body();
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
      throw DataError("standard output cannot be written; the files that were asked for are complete");
    }
    return exit_code;
  } catch (const UsageError& error) {
    return report(program, error, 2);
  } catch (const DataError& error) {
    return report(program, error, 3);
  } catch (const std::exception& error) {
    return report(program, error, 4);
  }
}

}  // namespace stagecoach
