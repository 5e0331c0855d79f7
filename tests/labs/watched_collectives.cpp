#include "tests/labs/watched_collectives.h"

#include <fmt/format.h>

#include <algorithm>

#include "parallel/comm/passing_communicator.h"
#include "parallel/launch/launch.h"
#include "tests/labs/grading.h"

namespace stagecoach::labs {
namespace {

/// Records each call, then makes it.
class RecordedCommunicator final : public PassingCommunicator {
 public:
  RecordedCommunicator(Communicator& comm, Collectives& collectives)
      : PassingCommunicator(comm), collectives_(collectives) {}

  PendingSend send_async(const Tensor& tensor, int to, int tag) override {
    collectives_.call(rank(), "send", tensor.numel());
    return PassingCommunicator::send_async(tensor, to, tag);
  }
  void send_number(double number, int to, int tag) override {
    collectives_.call(rank(), "send_number", 1);
    PassingCommunicator::send_number(number, to, tag);
  }
  void all_reduce(Tensor& tensor) override {
    collectives_.call(rank(), "all_reduce", tensor.numel());
    PassingCommunicator::all_reduce(tensor);
  }
  void reduce(Tensor& tensor, int root) override {
    collectives_.call(rank(), "reduce", tensor.numel());
    PassingCommunicator::reduce(tensor, root);
  }
  void broadcast(Tensor& tensor, int root) override {
    collectives_.call(rank(), "broadcast", tensor.numel());
    PassingCommunicator::broadcast(tensor, root);
  }
  std::vector<Tensor> all_gather(const Tensor& tensor) override {
    collectives_.call(rank(), "all_gather", tensor.numel());
    return PassingCommunicator::all_gather(tensor);
  }
  void all_gather_into(Tensor& whole, const Tensor& part) override {
    collectives_.call(rank(), "all_gather_into", part.numel());
    PassingCommunicator::all_gather_into(whole, part);
  }
  Tensor reduce_scatter(const Tensor& tensor) override {
    collectives_.call(rank(), "reduce_scatter", tensor.numel());
    return PassingCommunicator::reduce_scatter(tensor);
  }
  Tensor all_to_all(const Tensor& rows, const RowCounts& send_rows, const RowCounts& receive_rows) override {
    collectives_.call(rank(), "all_to_all", rows.numel());
    return PassingCommunicator::all_to_all(rows, send_rows, receive_rows);
  }
  void barrier() override {
    collectives_.call(rank(), "barrier", 0);
    PassingCommunicator::barrier();
  }

 private:
  Collectives& collectives_;
};

/// Collectives are calls that all ranks make together; messages are not.
bool is_collective(const CommunicatorCall& call) { return !call.operation.starts_with("send"); }

std::size_t collectives_in(const std::vector<CommunicatorCall>& calls) {
  return static_cast<std::size_t>(std::count_if(calls.begin(), calls.end(), is_collective));
}

/// Returns collective `which`, from 0, of at least as many.
CommunicatorCall collective_of(const std::vector<CommunicatorCall>& calls, std::size_t which) {
  return *std::find_if(calls.begin(), calls.end(),
                       [&](const CommunicatorCall& call) { return is_collective(call) && which-- == 0; });
}

}  // namespace

void Collectives::call(int rank, const std::string& operation, std::int64_t count) {
  std::unique_lock lock(mutex_);
  auto& mine = calls_[static_cast<std::size_t>(rank)];
  mine.push_back({operation, count, stamps_[static_cast<std::size_t>(rank)]});
  const CommunicatorCall call = mine.back();
  if (!is_collective(call)) {
    return;
  }
  const std::size_t number = collectives_in(mine) - 1;
  changed_.notify_all();
  for (std::size_t other = 0; other < calls_.size(); ++other) {
    changed_.wait(lock, [&] { return collectives_in(calls_[other]) > number || ended_[other]; });
    if (collectives_in(calls_[other]) <= number) {
      throw Failed(fmt::format("rank {} to call {} with rank {}", other, text_of(call), rank),
                   fmt::format("rank {} ends after {} collectives, and rank {} waits forever", other, number, rank),
                   texts_.how_many, drawn_locked());
    }
    const CommunicatorCall theirs = collective_of(calls_[other], number);
    if (theirs.operation != operation || theirs.count != count) {
      throw Failed(fmt::format("all ranks to make the same call as collective {}", number),
                   fmt::format("rank {} calls {}, rank {} calls {}", rank, text_of(call), other, text_of(theirs)),
                   texts_.order, drawn_locked());
    }
  }
}

void Collectives::end(int rank, const std::exception_ptr& failure) {
  const std::lock_guard lock(mutex_);
  if (first_failure_ == nullptr) {
    first_failure_ = failure;
  }
  ended_[static_cast<std::size_t>(rank)] = true;
  changed_.notify_all();
}

void Collectives::rethrow_failure() const {
  if (first_failure_ != nullptr) {
    std::rethrow_exception(first_failure_);
  }
}

void Collectives::stamp(int rank, int value) {
  const std::lock_guard lock(mutex_);
  stamps_[static_cast<std::size_t>(rank)] = value;
}

std::vector<CommunicatorCall> Collectives::calls_of(int rank) const {
  const std::lock_guard lock(mutex_);
  return calls_[static_cast<std::size_t>(rank)];
}

std::string Collectives::drawn() const {
  const std::lock_guard lock(mutex_);
  return drawn_locked();
}

std::string Collectives::text_of(const CommunicatorCall& call) const {
  return fmt::format("{}({})", call.operation, texts_.name(call.count));
}

std::string Collectives::drawn_locked() const {
  std::string text;
  for (std::size_t rank = 0; rank < calls_.size(); ++rank) {
    text += fmt::format("rank {} ", rank);
    for (const CommunicatorCall& call : calls_[rank]) {
      text += " " + text_of(call);
    }
    text += "\n";
  }
  return text;
}

void run_watched_collectives(int ranks, Collectives& collectives, const std::function<void(Communicator& comm)>& body) {
  constexpr double kTimeout = 2;  // seconds, for messages; a collective always gets its answer
  try {
    launch({.ranks = ranks, .timeout = kTimeout}, [&](Rank& rank) {
      try {
        RecordedCommunicator comm(rank.comm, collectives);
        body(comm);
        collectives.end(rank.index);
      } catch (...) {
        collectives.end(rank.index, std::current_exception());
        throw;  // so that the other ranks stop waiting
      }
    });
  } catch (...) {
    collectives.rethrow_failure();  // the first one; launch may have seen one that follows from it
    throw;
  }
}

}  // namespace stagecoach::labs
