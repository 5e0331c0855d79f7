#include "parallel/pipeline/split.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <set>

#include "core/base/parse.h"
#include "core/base/throw_if.h"
#include "parallel/comm/network.h"
#include "parallel/pipeline/rank_balance.h"

namespace stagecoach {
namespace {

void require_enough(int layers, int stages) {
  throw_if<UsageError>(
      stages < 1 || stages > layers,
      "{} layers cannot be split into {} stages: expected at most {} stages, one layer each; use fewer "
      "`ranks`, or fewer `stages_per_rank`",
      layers, stages, layers);
}

}  // namespace

Split split_by_layers(int layers, int stages) {
  require_enough(layers, stages);
  Split split(static_cast<std::size_t>(stages), layers / stages);
  for (int s = 0; s < layers % stages; ++s) {
    ++split[static_cast<std::size_t>(s)];
  }
  return split;
}

namespace {

/// Returns the split whose slowest stage is the fastest.
Split fastest_stages(const std::vector<double>& costs, int stages, const std::vector<int>& replicas) {
  const auto layers = static_cast<int>(costs.size());
  std::vector<double> before(costs.size() + 1, 0);  // prefix sums of the costs
  std::partial_sum(costs.begin(), costs.end(), before.begin() + 1);
  const auto sum = [&](int begin, int end) {
    return before[static_cast<std::size_t>(end)] - before[static_cast<std::size_t>(begin)];
  };
  // best[s][b]: the least possible largest sum when layers b … are divided into s stages; end[s][b]: the end of the
  // first of these stages.
  const auto width = static_cast<std::size_t>(layers + 1);
  std::vector<std::vector<double>> best(static_cast<std::size_t>(stages + 1),
                                        std::vector<double>(width, std::numeric_limits<double>::infinity()));
  std::vector<std::vector<int>> end(best.size(), std::vector<int>(width, 0));
  best[0][width - 1] = 0;
  for (std::size_t s = 1; s < best.size(); ++s) {
    const double sharing = replicas.empty() ? 1 : replicas[best.size() - 1 - s];
    for (int begin = 0; begin < layers; ++begin) {
      const auto b = static_cast<std::size_t>(begin);
      for (int e = begin + 1; e <= layers; ++e) {
        const double largest = std::max(sum(begin, e) / sharing, best[s - 1][static_cast<std::size_t>(e)]);
        if (largest < std::numeric_limits<double>::infinity() && largest <= best[s][b]) {
          best[s][b] = largest;
          end[s][b] = e;
        }
      }
    }
  }
  Split split;
  int begin = 0;
  for (int s = stages; s > 0; --s) {
    const int next = end[static_cast<std::size_t>(s)][static_cast<std::size_t>(begin)];
    split.push_back(next - begin);
    begin = next;
  }
  return split;
}

}  // namespace

bool has_one_stage_per_rank(const Placement& placement) {
  const auto& ranks = placement.stage_to_rank;
  return std::set<int>(ranks.begin(), ranks.end()).size() == ranks.size();
}

Split split_by_costs(const std::vector<double>& costs, const Placement& placement) {
  const int stages = placement.stage_count();
  require_enough(static_cast<int>(costs.size()), stages);
  const Split split = fastest_stages(costs, stages, placement.replicas);
  return has_one_stage_per_rank(placement) ? split : balance_ranks(costs, placement, split);
}

std::vector<double> parameter_costs(const Sequential& model) {
  std::vector<double> costs;
  for (int i = 0; i < model.size(); ++i) {
    costs.push_back(static_cast<double>(parameter_count(*model.layer(i))));
  }
  return costs;
}

namespace {

/// Parses numbers such as "5,4,3". Errors call them `what`.
std::vector<int> numbers_from_text(const std::string& text, const char* what) {
  std::vector<int> numbers;
  for (const std::string_view part : split_text(text, ',')) {
    const int number = number_from<int>(part).value_or(0);
    throw_if<UsageError>(number < 1 || number > kMaxSplit || numbers.size() == kMaxSplit,
                         "'{}' is not a list of {}: expected at most {} whole numbers, each from 1 to {}", text, what,
                         kMaxSplit, kMaxSplit);
    numbers.push_back(number);
  }
  return numbers;
}

}  // namespace

Split split_from_text(const std::string& text) { return numbers_from_text(text, "layers per stage, such as 5,4,3"); }

std::vector<int> splits_from_text(const std::string& text) {
  return numbers_from_text(text, "numbers of micro-batches, such as 1,2,4,8");
}

std::vector<int> replicas_from_text(const std::string& text) {
  std::vector<int> replicas = numbers_from_text(text, "ranks per stage, such as 2,1,1");
  std::int64_t ranks = 0;
  for (const int count : replicas) {
    ranks += count;
  }
  throw_if<UsageError>(ranks > kMaxPlannedRanks, "replicas '{0}': expected at most {2} ranks, got {1}", text, ranks,
                       kMaxPlannedRanks);
  return replicas;
}

std::string stages_text(const Split& split, const Placement& placement) {
  std::vector<std::string> ranks;
  for (int stage = 0; stage < placement.stage_count(); ++stage) {
    const int first = placement.rank_of(stage, 0);
    const int last = first + placement.replicas_of(stage) - 1;
    ranks.push_back(first == last ? std::to_string(first) : fmt::format("{}-{}", first, last));
  }
  return fmt::format("{} layers on ranks {}", fmt::join(split, ","), fmt::join(ranks, ","));
}

std::vector<Shape> shapes_entering(const Sequential& model, const Split& split, const Shape& sample) {
  std::vector<Shape> shapes;
  Shape shape = sample;
  for (const auto& stage : stages_of(model, split)) {
    shapes.push_back(shape);
    shape = stage->output_shape(shape);
  }
  return shapes;
}

std::vector<std::shared_ptr<Sequential>> stages_of(const Sequential& model, const Split& split) {
  const auto assigned = std::accumulate(split.begin(), split.end(), std::int64_t{0});
  const bool positive = std::all_of(split.begin(), split.end(), [](int layers) { return layers >= 1; });
  throw_if<UsageError>(
      assigned != model.size() || !positive,
      "split {0}: expected at least one layer per stage and {2} layers in all, got {1}; give another `split`",
      fmt::join(split, ","), assigned, model.size());
  std::vector<std::shared_ptr<Sequential>> stages;
  int begin = 0;
  for (const int layers : split) {
    stages.push_back(model.slice(begin, begin + layers));
    begin += layers;
  }
  return stages;
}

std::shared_ptr<Sequential> joined(const std::map<int, std::shared_ptr<Sequential>>& stages) {
  auto all = std::make_shared<Sequential>();
  for (const auto& [number, stage] : stages) {
    for (int i = 0; i < stage->size(); ++i) {
      all->add(stage->name(i), stage->layer(i));
    }
  }
  return all;
}

}  // namespace stagecoach
