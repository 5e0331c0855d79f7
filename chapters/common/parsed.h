#pragma once
/// @file
/// A setting with a syntax of its own, such as dp=2,pp=2.

#include <string>
#include <type_traits>
#include <utility>

namespace stagecoach {

/// A value that `read` parsed from a text. The text is kept too, so that config.json shows it as given.
template <auto read>
class Parsed {
 public:
  using Value = std::decay_t<decltype(read(std::string()))>;

  /// The setting was not given: the text is empty, and the value has its default.
  Parsed() = default;
  /// Throws what `read` throws.
  Parsed(std::string text) : text_(std::move(text)), value_(read(text_)) {}
  Parsed(const char* text) : Parsed(std::string(text)) {}

  bool empty() const { return text_.empty(); }
  const std::string& text() const { return text_; }
  const Value& operator*() const { return value_; }
  const Value* operator->() const { return &value_; }

 private:
  std::string text_;
  Value value_ = {};
};

}  // namespace stagecoach
