#include "tests/labs/lab8_checks.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/random.h"
#include "tests/labs/class_settings.h"

namespace stagecoach::labs::lab8 {
std::vector<int> rank_counts() { return {2, varied("lab 8: ranks", 3, 4), 1}; }

Collectives::Texts texts() {
  return {[](std::int64_t count) { return fmt::format("{} numbers", count); }, kCalls, kCalls};
}

void on_ranks(int ranks, Collectives& collectives, const std::function<void(Communicator& comm)>& body) {
  set_case(fmt::format("{} rank{}", ranks, ranks == 1 ? "" : "s"));
  run_watched_collectives(ranks, collectives, body);
}

Tensor whole_numbers(const Shape& shape, const std::string& name, Device device) {
  const Philox random(class_seed(), "lab 8: " + name);
  std::vector<float> values(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(static_cast<int>(random.below(i, 5)) - 2);
  }
  return Tensor::from(values, shape, device);
}

void require_calls(const Collectives& collectives, Pass pass, std::size_t expected, const std::string& of) {
  const auto calls = collectives.calls_of(0);
  const auto count = static_cast<std::size_t>(std::count_if(
      calls.begin(), calls.end(), [&](const CommunicatorCall& call) { return call.stamp == static_cast<int>(pass); }));
  if (count != expected) {
    throw Failed(fmt::format("{} call{} of the communicator in the {} of {}{}", expected, expected == 1 ? "" : "s",
                             pass == Pass::forward ? "forward" : "backward", of, for_case()),
                 std::to_string(count), kCalls, collectives.drawn());
  }
}

}  // namespace stagecoach::labs::lab8
