// No reader: bugs of every kind, so that a test can see that each of them counts as a find.

#include <cstdlib>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "tests/fuzz/target.h"

using namespace stagecoach;

namespace {

void run_bug(std::string_view name) {
  if (name == "crash") {
    std::abort();
  } else if (name == "exception") {
    throw std::invalid_argument("stoll");
  } else if (name == "memory") {
    std::vector<char> much(std::size_t{1} << 30U, 'x');
    fuzz::require(much.back() == 'x', "unreachable");
  } else if (name == "hang") {
    for (volatile bool forever = true; forever;) {
    }
  } else if (name == "refused") {
    throw DataError("no find");
  }
}

/// What the first line names is done when the number after it is beyond all bounds, which a mutation must make.
void read(std::string_view text) {
  const std::size_t end = text.find('\n');
  if (end != std::string_view::npos && text.substr(end + 1).starts_with("2147483648")) {
    run_bug(text.substr(0, end));
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::accepts<DataError>([&] { read(fuzz::text_of(data, size)); });
  return 0;
}
