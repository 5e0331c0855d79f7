#include "chapters/compare/coinciding_runs.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>

namespace stagecoach {
namespace {

/// Returns whether two losses are equal, except for rounding: the losses of a batch may have been summed in another
/// order.
bool is_same_loss(double a, double b) {
  constexpr double kRounding = 1e-6;
  return a == b || (std::isnan(a) && std::isnan(b)) ||
         std::abs(a - b) <= kRounding * std::min(std::abs(a), std::abs(b));
}

bool is_same_curve(const EpochCurve& a, const EpochCurve& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.first == y.first && is_same_loss(x.second, y.second);
  });
}

}  // namespace

bool has_same_bytes(const std::filesystem::path& a, const std::filesystem::path& b) {
  std::error_code unreadable;
  if (!std::filesystem::is_regular_file(a, unreadable) || !std::filesystem::is_regular_file(b, unreadable) ||
      std::filesystem::file_size(a, unreadable) != std::filesystem::file_size(b, unreadable)) {
    return false;
  }
  std::ifstream first(a, std::ios::binary);
  std::ifstream second(b, std::ios::binary);
  using Bytes = std::istreambuf_iterator<char>;
  return first && second && std::equal(Bytes(first), Bytes(), Bytes(second), Bytes());
}

std::vector<CoincidingRuns> coinciding_runs(const std::vector<RunSummary>& runs) {
  std::vector<CoincidingRuns> all;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    auto like = std::find_if(all.begin(), all.end(), [&](const CoincidingRuns& other) {
      return is_same_curve(runs[other.runs.front()].losses, runs[i].losses);
    });
    if (like == all.end()) {
      all.push_back({{i}, true});
      continue;
    }
    like->same_weights = like->same_weights && has_same_bytes(runs[like->runs.front()].weights, runs[i].weights);
    like->runs.push_back(i);
  }
  return all;
}

}  // namespace stagecoach
