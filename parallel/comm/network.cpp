#include "parallel/comm/network.h"

#include <algorithm>
#include <limits>
#include <map>

#include "core/base/parse.h"
#include "core/base/throw_if.h"

namespace stagecoach {
namespace {

double rate_of(const Link& link) {
  return link.bytes_per_second > 0 ? link.bytes_per_second : std::numeric_limits<double>::infinity();
}

}  // namespace

Link Network::between(const std::vector<int>& group, int from, int to, const RankGroups& siblings) const {
  const auto rank = [&](int number) { return group[static_cast<std::size_t>(number)]; };
  const int size = static_cast<int>(group.size());
  return is_on_one_node(rank(from), rank(to)) ? inner_ : share_of_outer(siblings, (to - from + size) % size);
}

Link Network::between_any(const RankGroups& groups, int from, int to) const {
  const auto slow = std::find_if(groups.begin(), groups.end(), [&](const std::vector<int>& group) {
    return between(group, from, to, groups) != inner_;
  });
  return slow == groups.end() ? inner_ : between(*slow, from, to, groups);
}

Link Network::among(const std::vector<int>& group, const RankGroups& siblings, int step) const {
  std::vector<int> receivers = group;
  std::rotate(receivers.begin(), receivers.begin() + step % static_cast<int>(group.size()), receivers.end());
  const bool on_one_node = std::equal(group.begin(), group.end(), receivers.begin(),
                                      [&](int from, int to) { return is_on_one_node(from, to); });
  return on_one_node ? inner_ : share_of_outer(siblings, step);
}

double Network::all_to_all_seconds(const std::vector<int>& group, const RankGroups& siblings,
                                   const std::vector<double>& bytes) const {
  double seconds = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    seconds += among(group, siblings, static_cast<int>(i) + 1).seconds(bytes[i]);
  }
  return seconds;
}

Link Network::among_any(const RankGroups& groups, const RankGroups& siblings) const {
  const auto slow = std::find_if(groups.begin(), groups.end(),
                                 [&](const std::vector<int>& group) { return among(group, siblings) != inner_; });
  return slow == groups.end() ? inner_ : among(*slow, siblings);
}

Link Network::share_of_outer(const RankGroups& groups, int step) const {
  std::map<int, int> sent;  // messages that leave each node
  std::map<int, int> received;
  int busiest = 1;
  for (const std::vector<int>& group : groups) {
    for (std::size_t i = 0; i < group.size(); ++i) {
      const int to = group[(i + static_cast<std::size_t>(step)) % group.size()];
      if (!is_on_one_node(group[i], to)) {
        busiest = std::max({busiest, ++sent[node_of(group[i])], ++received[node_of(to)]});
      }
    }
  }
  return {outer_.latency, outer_.bytes_per_second / busiest};
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
  throw_if<UsageError>(per_node < 1 || per_node > kMaxPlannedRanks,
                       "'{}': expected from 1 to {} ranks per node, got '{}'", text, kMaxPlannedRanks, count);
  throw_if<UsageError>(outer.latency < inner.latency || rate_of(outer) > rate_of(inner),
                       "'{}': the link between nodes is faster than the one within a node; exchange inner and outer",
                       text);
  return {inner, outer, per_node};
}

}  // namespace stagecoach
