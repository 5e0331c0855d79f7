#include "datasets/text.h"

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/throw_if.h"
#include "datasets/files.h"

namespace stagecoach {
namespace {

constexpr std::string_view kPrefix = "text:";

using SharedText = std::shared_ptr<const std::vector<std::uint8_t>>;

/// The sequences of the bytes `begin` … end-1 of a text.
class Sequences final : public SampleSource {
 public:
  Sequences(SharedText text, std::int64_t begin, std::int64_t end, std::int64_t context)
      : text_(std::move(text)), begin_(begin), context_(context), size_((end - begin - 1) / context) {}

  std::int64_t size() const override { return size_; }
  SampleType input() const override { return {{context_}, DType::int32}; }
  SampleType target() const override { return input(); }
  void read(std::int64_t index, Tensor& input, Tensor& target) const override {
    const std::uint8_t* first = text_->data() + begin_ + index * context_;
    if (input.defined()) {
      std::copy(first, first + context_, input.mutable_data<std::int32_t>());
    }
    std::copy(first + 1, first + 1 + context_, target.mutable_data<std::int32_t>());
  }

 private:
  SharedText text_;
  std::int64_t begin_;
  std::int64_t context_;
  std::int64_t size_;
};

/// Returns names for the bytes: the character, or its number.
std::vector<std::string> names_of_bytes() {
  std::vector<std::string> names;
  for (int byte = 0; byte < kByteValues; ++byte) {
    const bool is_printable = byte > 32 && byte < 127;
    names.push_back(is_printable ? std::string(1, static_cast<char>(byte)) : fmt::format("byte {}", byte));
  }
  return names;
}

}  // namespace

bool is_text(const std::string& where) { return where.starts_with(kPrefix); }

TrainTest load_text(const std::string& where, const TextSettings& settings) {
  const std::string file = where.substr(std::min(where.size(), kPrefix.size()));
  const bool is_book = file == "book";
  throw_if<DataError>(file.empty(),
                      "text: expected the name of a file after '{}', such as text:notes.txt, or text:book", where);
  throw_if<UsageError>(settings.context < 1, "text: expected a `context` of at least 1 byte, got {}", settings.context);
  std::vector<std::uint8_t> read = is_book ? std::vector<std::uint8_t>(book().begin(), book().end()) : read_file(file);
  if (settings.max_bytes > 0 && std::ssize(read) > settings.max_bytes) {
    read.resize(static_cast<std::size_t>(settings.max_bytes));
  }
  const std::int64_t size = std::ssize(read);
  const std::int64_t begin_of_test = size - size / 10;
  throw_if<DataError>(size - begin_of_test < settings.context + 1,
                      "{} is too short: expected at least {} bytes, so that its last tenth has a sequence of {} bytes "
                      "and the one after it, got {}; use a longer text or a smaller `context`",
                      is_book ? where : file, 10 * (settings.context + 1), settings.context, size);
  const SharedText text = std::make_shared<const std::vector<std::uint8_t>>(std::move(read));
  const auto part = [&](std::int64_t begin, std::int64_t end) {
    return Dataset{.inputs = {},
                   .targets = {},
                   .classes = names_of_bytes(),
                   .samples = std::make_shared<Sequences>(text, begin, end, settings.context)};
  };
  return {part(0, begin_of_test), part(begin_of_test, size), {.files = 1}};
}

}  // namespace stagecoach
