#pragma once
/// @file
/// Errors that say what is wrong, where, and what to do. Every failure in Stagecoach is one of these exceptions; a
/// chapter's `main` maps its type to an exit code.

#ifndef __CUDACC__  // nvcc cannot compile it: device code leaves checks to functions in .cpp files
#include <fmt/core.h>
#endif

#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>

namespace stagecoach {

/// A violated requirement inside the program, such as mismatched shapes. The text ends with the file and line.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The user asked for something that cannot be done (a wrong flag or value). Exit code 2.
class UsageError : public Error {
 public:
  using Error::Error;
};

/// Data on disk is missing, damaged, or cannot be written. Exit code 3.
class DataError : public Error {
 public:
  using Error::Error;
};

/// Returns "core/ops/conv2d.cpp" rather than the path on the machine that compiled it.
std::string_view short_path(std::string_view file);

/// Throws Error with `what`, followed by the source location.
[[noreturn]] void fail(const std::string& what, const std::source_location& where = std::source_location::current());

}  // namespace stagecoach

/// Throws stagecoach::Error unless `condition` holds. The other arguments are a fmt format string and its values.
#define STAGECOACH_CHECK(condition, ...)            \
  do {                                              \
    if (!(condition)) [[unlikely]] {                \
      ::stagecoach::fail(fmt::format(__VA_ARGS__)); \
    }                                               \
  } while (false)
