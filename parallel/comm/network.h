#pragma once
/// @file
/// Which link connects which ranks of a modelled network.

#include <string>
#include <vector>

#include "parallel/comm/link.h"

namespace stagecoach {

/// The links of a world: of one kind, or fast ones within each node and slower ones between nodes. Every two ranks have
/// a link of their own, so messages between other ranks never wait for theirs.
class Network {
 public:
  /// All ranks are on one node.
  Network(const Link& link = {}) : inner_(link), outer_(link) {}  // NOLINT: a link is a network of this kind
  /// Each node has `per_node` ranks with consecutive numbers.
  Network(const Link& inner, const Link& outer, int per_node) : inner_(inner), outer_(outer), per_node_(per_node) {}
  bool operator==(const Network&) const = default;

  /// Returns the link between two ranks of the world.
  const Link& between(int rank, int other) const { return node_of(rank) == node_of(other) ? inner_ : outer_; }
  /// Returns the link that decides how long a collective takes among these ranks: with several nodes, that between
  /// nodes, since each step of a ring waits for its slowest message.
  const Link& among(const std::vector<int>& ranks) const;
  /// Returns the same for the slowest of several groups.
  const Link& among_any(const std::vector<std::vector<int>>& groups) const;
  /// Returns the same for the ranks 0 … `ranks` - 1.
  const Link& among_first(int ranks) const { return between(0, ranks - 1); }

 private:
  int node_of(int rank) const { return per_node_ == 0 ? 0 : rank / per_node_; }

  Link inner_;
  Link outer_;
  int per_node_ = 0;  // 0: one node
};

/// Parses the value of --link: a link between any two ranks (see link_from_text), or
/// "inner=LINK,outer=LINK,per-node=N", such as "inner=nvlink4,outer=ethernet100,per-node=4". Throws UsageError.
Network network_from_text(const std::string& text);

}  // namespace stagecoach
