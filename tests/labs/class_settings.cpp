#include "tests/labs/class_settings.h"

#include "core/random.h"

namespace stagecoach::labs {
namespace {

constexpr std::uint64_t kSeedOfFile =
#include "tests/labs/class_seed.txt"
    ;

std::uint64_t& seed() {
  static std::uint64_t value = kSeedOfFile;
  return value;
}

}  // namespace

std::uint64_t class_seed() { return seed(); }

void set_class_seed(std::uint64_t new_seed) { seed() = new_seed; }

int varied(std::string_view what, int lowest, int highest) {
  if (class_seed() == 0) {
    return lowest;
  }
  const auto choices = static_cast<std::uint32_t>(highest - lowest + 1);
  return lowest + static_cast<int>(Philox(class_seed(), what).below(0, choices));
}

}  // namespace stagecoach::labs
