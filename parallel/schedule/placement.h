#pragma once
/// @file
/// Placement: which ranks hold which stage of a pipeline, and which of them runs which micro-batch.

#include <vector>

namespace stagecoach {

struct Placement {
  /// The rank of each stage; for a replicated stage, the first of its ranks. With c stages per rank, rank r of p
  /// usually has the stages r, r + p, r + 2p, …: its chunks.
  std::vector<int> stage_to_rank = {};
  /// The number of replicas of each stage; empty if every stage has one. Replica i mod n runs micro-batch i, forward
  /// and backward (Narayanan et al., "PipeDream", 2019, section 3.2: 1F1B-RR).
  std::vector<int> replicas = {};

  int stage_count() const { return static_cast<int>(stage_to_rank.size()); }
  int replicas_of(int stage) const { return replicas.empty() ? 1 : replicas[static_cast<std::size_t>(stage)]; }
  /// Returns the rank that runs `stage` on `microbatch`.
  int rank_of(int stage, int microbatch) const {
    return stage_to_rank[static_cast<std::size_t>(stage)] + microbatch % replicas_of(stage);
  }
  bool holds(int rank, int stage) const {
    const int first = stage_to_rank[static_cast<std::size_t>(stage)];
    return rank >= first && rank < first + replicas_of(stage);
  }
  /// Returns the stages that `rank` holds, its chunks, in ascending order.
  std::vector<int> stages_of(int rank) const;
  /// Returns the first of them, or -1 if it holds none.
  int stage_of(int rank) const;
  bool operator==(const Placement&) const = default;
};

/// Returns a round-robin placement: stage s is on rank s mod `ranks`.
Placement round_robin_placement(int stages, int ranks);
/// Returns a contiguous placement: stage s is on replicas[s] ranks, after those of stage s - 1. {2, 1} places stage 0
/// on ranks 0 and 1, and stage 1 on rank 2.
Placement contiguous_placement(const std::vector<int>& replicas);
/// Returns a V-shaped placement with two stages per rank: stage s < ranks is on rank s, and the other stages run back
/// from the last rank to rank 0. So rank 0 holds both the first and the last stage. Source: Qi et al., "Zero bubble
/// pipeline parallelism", 2023, section 6.
Placement v_placement(int ranks);

}  // namespace stagecoach
