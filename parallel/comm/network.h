#pragma once
/// @file
/// Which link connects which ranks of a modelled network.

#include <string>
#include <vector>

#include "parallel/comm/link.h"

namespace stagecoach {

/// The ranks that a plan may have; fewer can run as threads of one machine (kMaxDevices).
inline constexpr int kMaxPlannedRanks = 16384;

/// Groups of ranks, by their numbers in the world: [groups][the ranks of each, in their order].
using RankGroups = std::vector<std::vector<int>>;

/// The links of a world: of one kind, or fast ones within each node and slower ones between nodes.
///
/// Within a node, every two ranks have a link of their own. Between nodes, all messages of a node pass its one network
/// card, whose bandwidth in each direction is divided among the ranks that use it at a time. Which ranks these are must
/// not depend on which comes first in real time, so a rule decides: the ranks of a group do the same at the same time,
/// and so do its siblings, which are the groups that were split off together with it. If a rank sends to the one
/// `step` places after it, in a circle, all of them do. The share of a message is then one over the number of messages
/// that the busiest card passes in that step. So a pipeline whose ranks are in order sends one message at a time
/// through a card and has all of its bandwidth, and of eight pipelines beside each other each has an eighth. A
/// collective is a ring, a step of 1, but an all-to-all takes all steps, one after another.
///
/// Different splits are independent: the messages of pipelines do not slow down the reductions of data-parallel groups.
/// A rank that sends alone to one further away, as a master to its workers, gets less than it could.
class Network {
 public:
  /// All ranks are on one node.
  Network(const Link& link = {}) : inner_(link), outer_(link) {}  // NOLINT: a link is a network of this kind
  /// Each node has `per_node` ranks with consecutive numbers.
  Network(const Link& inner, const Link& outer, int per_node) : inner_(inner), outer_(outer), per_node_(per_node) {}
  bool operator==(const Network&) const = default;

  /// Returns the link between ranks of one node.
  const Link& within_node() const { return inner_; }
  /// Returns whether both ranks are on one node.
  bool is_on_one_node(int rank, int other) const { return node_of(rank) == node_of(other); }
  /// Returns the link from rank `from` of `group`, which is one of `siblings`, to its rank `to`.
  Link between(const std::vector<int>& group, int from, int to, const RankGroups& siblings) const;
  /// Returns the same for the slowest of `groups`, which are siblings.
  Link between_any(const RankGroups& groups, int from, int to) const;
  /// Returns the link that decides how long a collective of `group` takes: with several nodes, that between nodes,
  /// since each step of a ring waits for its slowest message. More generally: the slowest link on which a rank of
  /// `group` sends to the one `step` places after it.
  Link among(const std::vector<int>& group, const RankGroups& siblings, int step = 1) const;
  /// Returns the same for the slowest of `groups`, which are some of `siblings`.
  Link among_any(const RankGroups& groups, const RankGroups& siblings) const;
  /// Returns the same for a group of the ranks 0 … `ranks` - 1.
  const Link& among_first(int ranks) const { return is_on_one_node(0, ranks - 1) ? inner_ : outer_; }
  /// Returns the seconds of an all-to-all of `group`, from the time when the last rank calls it, for a rank of which
  /// bytes[s - 1] is the longer of the two messages of step s, 1 … p - 1: the one to the rank s places after it, and
  /// the one from the rank s places before it. The steps follow one another, so equal parts of n bytes per rank take p
  /// - 1 messages of n / p. Source: Thakur et al. 2005 (see link.h), section 4.3, the algorithm for long messages.
  double all_to_all_seconds(const std::vector<int>& group, const RankGroups& siblings,
                            const std::vector<double>& bytes) const;

 private:
  int node_of(int rank) const { return per_node_ == 0 ? 0 : rank / per_node_; }
  /// Returns the part of the link between nodes that a message has if all ranks send to the one `step` places after
  /// them.
  Link share_of_outer(const RankGroups& groups, int step) const;

  Link inner_;
  Link outer_;
  int per_node_ = 0;  // 0: one node
};

/// Parses the value of --link: a link between any two ranks (see link_from_text), or
/// "inner=LINK,outer=LINK,per-node=N", such as "inner=nvlink4,outer=ethernet100,per-node=4". Throws UsageError.
Network network_from_text(const std::string& text);

}  // namespace stagecoach
