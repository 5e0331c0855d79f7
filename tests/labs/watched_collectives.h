#pragma once
/// @file
/// Ranks whose collectives are recorded and compared while they run.

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "parallel/comm/communicator.h"

namespace stagecoach::labs {

/// One call of a collective or a message.
struct CommunicatorCall {
  std::string operation;  ///< "all_reduce"
  std::int64_t count;     ///< of numbers
  int stamp;              ///< what Collectives::stamp was set to on the rank
  bool operator==(const CommunicatorCall&) const = default;
};

/// What all ranks have called so far. Ranks that are threads share one.
class Collectives {
 public:
  /// What drawings and failures say.
  struct Texts {
    std::function<std::string(std::int64_t count)> name;  ///< of a call's tensor, by its count of numbers: "bucket 1"
    std::string order;                                    ///< where to read on if ranks make different calls
    std::string how_many;                                 ///< where to read on if a rank makes fewer
  };
  Collectives(int ranks, Texts texts)
      : calls_(static_cast<std::size_t>(ranks)),
        stamps_(calls_.size()),
        ended_(calls_.size()),
        texts_(std::move(texts)) {}

  /// Records the call of a rank. For a collective, waits until all ranks have made as many of them. Throws Failed, with
  /// a drawing, if a rank ends without it, or makes another call or one with another count.
  void call(int rank, const std::string& operation, std::int64_t count);
  /// Records that a rank calls nothing any more, and why, if it failed. The first failure counts: those of other ranks
  /// follow from it.
  void end(int rank, const std::exception_ptr& failure = nullptr);
  /// Throws the first failure, if there is one.
  void rethrow_failure() const;
  /// Sets what the next calls of a rank are marked with.
  void stamp(int rank, int value);

  std::vector<CommunicatorCall> calls_of(int rank) const;
  /// Returns one line per rank: what it has called, in order.
  std::string drawn() const;

 private:
  std::string text_of(const CommunicatorCall& call) const;
  std::string drawn_locked() const;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::vector<CommunicatorCall>> calls_;
  std::vector<int> stamps_;
  std::vector<bool> ended_;
  std::exception_ptr first_failure_;
  Texts texts_;
};

/// Runs body(comm of the rank) on `ranks` threads; the communicators record in `collectives`. Throws what the first
/// rank that failed threw.
void run_watched_collectives(int ranks, Collectives& collectives, const std::function<void(Communicator& comm)>& body);

}  // namespace stagecoach::labs
