#pragma once
/// @file
/// What the blanks of the labs throw until a student replaces them.

#include <algorithm>
#include <source_location>
#include <stdexcept>
#include <string>

#include "core/base/error.h"

namespace stagecoach::lab {

class NotWritten : public std::runtime_error {
 public:
  /// The text is "not written yet: shift, in chapters/02_naive_model_parallel/lab/shift.cpp".
  explicit NotWritten(const std::source_location& where = std::source_location::current())
      : std::runtime_error("not written yet: " + name_of(where.function_name()) + ", in " +
                           std::string(short_path(where.file_name()))) {}

 private:
  /// Returns "shift" of "stagecoach::Tensor stagecoach::lab::shift(stagecoach::Communicator&, …)".
  static std::string name_of(std::string function) {
    function.erase(std::min(function.find('('), function.size()));
    return function.substr(function.find_last_of(" :*&") + 1);
  }
};

}  // namespace stagecoach::lab
