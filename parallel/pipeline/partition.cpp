#include "parallel/pipeline/partition.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>

#include "core/base/throw_if.h"

namespace stagecoach {
namespace {

/// The cost of consecutive layers, added up from the first of them. A difference of two prefix sums would have a
/// rounding error proportional to the cost of the whole model, which may hide a small stage.
struct StageCost {
  double seconds = 0;
  double weight_bytes = 0;

  void add(const LayerCost& layer) {
    seconds += layer.seconds;
    weight_bytes += layer.weight_bytes;
  }
  double seconds_with(int replicas, const Link& link) const {
    const double averaging = replicas > 1 ? ring_all_reduce_seconds(link, replicas, weight_bytes) : 0;
    return (seconds + averaging) / replicas;
  }
};

/// Returns the seconds of the message into the stage that begins with layer `begin`, and of its gradient.
double message_seconds(const std::vector<LayerCost>& layers, std::size_t begin, const Link& link) {
  return begin == 0 ? 0 : 2 * link.seconds(layers[begin - 1].output_bytes);
}

void require_cost(std::size_t layer, const char* what, double cost) {
  throw_if<UsageError>(!std::isfinite(cost) || cost < 0, "layer {}: expected {} to be finite and at least 0, got {}",
                       layer, what, cost);
}

void require_layers(const std::vector<LayerCost>& layers) {
  throw_if<UsageError>(layers.empty(), "partition: expected the costs of at least one layer, got none");
  for (std::size_t i = 0; i < layers.size(); ++i) {
    require_cost(i, "seconds", layers[i].seconds);
    require_cost(i, "output_bytes", layers[i].output_bytes);
    require_cost(i, "weight_bytes", layers[i].weight_bytes);
  }
}

void require_fits(std::size_t layers, const Split& split, const std::vector<int>& replicas) {
  const auto positive = [](int count) { return count >= 1; };
  const bool all_dealt = std::accumulate(split.begin(), split.end(), std::size_t{0}) == layers;
  throw_if<UsageError>(!all_dealt || !std::all_of(split.begin(), split.end(), positive),
                       "split {0}: expected at least one layer per stage and {1} layers in all", fmt::join(split, ","),
                       layers);
  throw_if<UsageError>(replicas.size() != split.size() || !std::all_of(replicas.begin(), replicas.end(), positive),
                       "replicas {0}: expected {1} numbers of at least 1, one per stage", fmt::join(replicas, ","),
                       split.size());
}

/// A value for each number of layers and of ranks that are assigned so far: [layers + 1][ranks + 1].
template <class Value>
using Table = std::vector<std::vector<Value>>;

template <class Value>
Table<Value> make_table(std::size_t layers, int ranks, Value value) {
  return Table<Value>(layers + 1, std::vector<Value>(static_cast<std::size_t>(ranks) + 1, value));
}

/// Calls visit(begin, end, n, seconds) for each possible stage of layers begin … end - 1 and n replicas; `seconds` is
/// the larger of the stage's time and that of the message into it. Stages that end at a layer are visited before those
/// that begin there.
template <class Visit>
void for_each_stage(const std::vector<LayerCost>& layers, int ranks, const Link& link, const Visit& visit) {
  for (std::size_t begin = 0; begin < layers.size(); ++begin) {
    const double message = message_seconds(layers, begin, link);
    StageCost stage;
    for (std::size_t end = begin + 1; end <= layers.size(); ++end) {
      stage.add(layers[end - 1]);
      for (int n = 1; n <= ranks; ++n) {
        visit(begin, end, static_cast<std::size_t>(n), std::max(message, stage.seconds_with(n, link)));
      }
    }
  }
}

/// Returns the least possible time of the slowest part.
double min_seconds(const std::vector<LayerCost>& layers, int ranks, const Link& link) {
  auto least = make_table(layers.size(), ranks, std::numeric_limits<double>::infinity());
  least[0][0] = 0;
  const auto try_stage = [&](std::size_t begin, std::size_t end, std::size_t n, double seconds) {
    for (std::size_t m = n; m < least[end].size(); ++m) {
      least[end][m] = std::min(least[end][m], std::max(least[begin][m - n], seconds));
    }
  };
  for_each_stage(layers, ranks, link, try_stage);
  return least.back().back();
}

/// The best partition of the first layers over the first ranks, as one entry of a table.
struct Choice {
  int stages = std::numeric_limits<int>::max();  ///< initially: no partition is known
  std::size_t begin = 0;                         ///< of the last stage
  std::size_t replicas = 0;                      ///< of the last stage
};

/// Finds the fewest stages such that no part takes longer than `limit`.
///
/// This needs a table of its own: the fastest partition of the first layers may have more stages than a slower one that
/// is still faster than a later stage.
Table<Choice> fewest_stages(const std::vector<LayerCost>& layers, int ranks, const Link& link, double limit) {
  auto choices = make_table(layers.size(), ranks, Choice{});
  choices[0][0].stages = 0;
  const auto try_stage = [&](std::size_t begin, std::size_t end, std::size_t n, double seconds) {
    if (seconds > limit) {
      return;
    }
    for (std::size_t m = n; m < choices[end].size(); ++m) {
      const int before = choices[begin][m - n].stages;
      if (before < choices[end][m].stages - 1) {
        choices[end][m] = {before + 1, begin, n};
      }
    }
  };
  for_each_stage(layers, ranks, link, try_stage);
  return choices;
}

/// Reads the stages from the last to the first.
Partition read_back(const Table<Choice>& choices) {
  Partition best;
  std::size_t end = choices.size() - 1;
  std::size_t ranks = choices.back().size() - 1;
  while (end > 0) {
    const Choice& last = choices[end][ranks];
    best.split.push_back(static_cast<int>(end - last.begin));
    best.replicas.push_back(static_cast<int>(last.replicas));
    end = last.begin;
    ranks -= last.replicas;
  }
  std::reverse(best.split.begin(), best.split.end());
  std::reverse(best.replicas.begin(), best.replicas.end());
  return best;
}

}  // namespace

std::vector<LayerCost> layer_costs(const std::vector<LayerProfile>& profile, Stage::Recompute recompute) {
  std::vector<LayerCost> costs;
  for (const LayerProfile& layer : profile) {
    costs.push_back({layer.seconds(recompute), static_cast<double>(layer.output_bytes),
                     static_cast<double>(layer.parameter_bytes)});
  }
  return costs;
}

double slowest_part(const std::vector<LayerCost>& layers, const Split& split, const std::vector<int>& replicas,
                    const Link& link) {
  require_layers(layers);
  require_fits(layers.size(), split, replicas);
  double slowest = 0;
  std::size_t layer = 0;
  for (std::size_t s = 0; s < split.size(); ++s) {
    slowest = std::max(slowest, message_seconds(layers, layer, link));
    StageCost stage;
    for (int i = 0; i < split[s]; ++i, ++layer) {
      stage.add(layers[layer]);
    }
    slowest = std::max(slowest, stage.seconds_with(replicas[s], link));
  }
  return slowest;
}

Partition partition(const std::vector<LayerCost>& layers, int ranks, const Link& link) {
  require_layers(layers);
  throw_if<UsageError>(ranks < 1, "partition: expected at least 1 rank, got {}", ranks);
  // Equal sums may differ by this relative error when they are added up in different orders.
  const double rounding = 4 * static_cast<double>(layers.size()) * std::numeric_limits<double>::epsilon();
  const double limit = min_seconds(layers, ranks, link) * (1 + rounding);
  Partition best = read_back(fewest_stages(layers, ranks, link, limit));
  best.seconds = slowest_part(layers, best.split, best.replicas, link);
  return best;
}

}  // namespace stagecoach
