#include "parallel/comm/network.h"

#include <algorithm>
#include <limits>

#include "core/base/parse.h"
#include "core/base/throw_if.h"
#include "core/device.h"

namespace stagecoach {
namespace {

double rate_of(const Link& link) {
  return link.bytes_per_second > 0 ? link.bytes_per_second : std::numeric_limits<double>::infinity();
}

}  // namespace

const Link& Network::among(const std::vector<int>& ranks) const {
  const bool on_one_node =
      std::all_of(ranks.begin(), ranks.end(), [&](int rank) { return node_of(rank) == node_of(ranks.front()); });
  return on_one_node ? inner_ : outer_;
}

const Link& Network::among_any(const std::vector<std::vector<int>>& groups) const {
  const bool on_one_node =
      std::all_of(groups.begin(), groups.end(), [&](const std::vector<int>& group) { return among(group) == inner_; });
  return on_one_node ? inner_ : outer_;
}

Network network_from_text(const std::string& text) {
  const std::string names[] = {"inner=", ",outer=", ",per-node="};
  if (!text.starts_with("inner=") && text.find("outer=") == std::string::npos &&
      text.find("per-node=") == std::string::npos) {
    return link_from_text(text);
  }
  const std::size_t outer_at = text.find(names[1]);
  const std::size_t count_at = text.find(names[2]);
  throw_if<UsageError>(!text.starts_with(names[0]) || outer_at == std::string::npos || count_at == std::string::npos ||
                           count_at < outer_at,
                       "'{}' is not a network: expected inner=LINK,outer=LINK,per-node=RANKS, such as "
                       "inner=nvlink4,outer=ethernet100,per-node=4",
                       text);
  const auto between = [&](std::size_t begin, std::size_t end) { return text.substr(begin, end - begin); };
  const Link inner = link_from_text(between(names[0].size(), outer_at));
  const Link outer = link_from_text(between(outer_at + names[1].size(), count_at));
  const std::string count = text.substr(count_at + names[2].size());
  const int per_node = number_from<int>(count).value_or(0);
  throw_if<UsageError>(per_node < 1 || per_node > kMaxDevices, "'{}': expected from 1 to {} ranks per node, got '{}'",
                       text, kMaxDevices, count);
  throw_if<UsageError>(outer.latency < inner.latency || rate_of(outer) > rate_of(inner),
                       "'{}': the link between nodes is faster than the one within a node; exchange inner and outer",
                       text);
  return {inner, outer, per_node};
}

}  // namespace stagecoach
