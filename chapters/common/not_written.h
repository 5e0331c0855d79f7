#pragma once
/// @file
/// What the blanks of the labs throw until a student replaces them.

#include <stdexcept>
#include <string>

namespace stagecoach::lab {

class NotWritten : public std::runtime_error {
 public:
  /// The text is "lab 3: not written yet".
  explicit NotWritten(int lab) : std::runtime_error("lab " + std::to_string(lab) + ": not written yet") {}
};

}  // namespace stagecoach::lab
