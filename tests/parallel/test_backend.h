#pragma once
/// @file
/// A backend between threads, for tests of what runs over NCCL without a GPU. It is as strict as a backend may be:
/// nothing is kept on the way, so a transfer goes on only when both its ranks have it at the head of a channel, and
/// both ends of a message must have given it the same tag.

#include <algorithm>
#include <cstring>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "parallel/comm/ordered_sum.h"
#include "parallel/comm/point_to_point_backend.h"

namespace stagecoach::test {

/// What the ends of all backends of a world share.
class TestHub {
 public:
  /// From one rank to another; or, for what all ranks do, of nobody.
  using Channel = std::pair<int, int>;
  static constexpr Channel kAll{-1, -1};
  struct Transfer {
    std::vector<PointToPointBackend::Move> moves;
    std::vector<bool> done;
    Tensor sum;  // that is to be replaced by the sum over all ranks; or undefined
    bool is_done() const { return !sum.defined() && std::count(done.begin(), done.end(), false) == 0; }
  };
  struct Choice {
    int colour;
    int key;
    int rank;
  };
  /// Channels of a group's ranks, and who has come to its splits.
  struct Group {
    int size = 0;
    std::map<Channel, std::map<int, std::deque<std::shared_ptr<Transfer>>>> channels;  // by channel and rank
    std::vector<std::vector<Choice>> splits;
  };

  std::mutex mutex;  // guards the groups
  std::map<std::string, Group> groups;

  /// Moves all that can move. The caller holds the mutex.
  static void advance(Group& group, Channel channel) {
    auto& queues = group.channels[channel];
    for (bool moved = true; moved;) {
      moved = sum_up(group, queues);
      for (auto& [rank, queue] : queues) {
        moved = (!queue.empty() && advance(queues, rank, *queue.front())) || moved;
      }
      for (auto& [rank, queue] : queues) {
        if (!queue.empty() && queue.front()->is_done()) {
          queue.pop_front();
          moved = true;
        }
      }
    }
  }

 private:
  using Queues = std::map<int, std::deque<std::shared_ptr<Transfer>>>;

  static bool advance(Queues& queues, int from, Transfer& sending) {
    bool moved = false;
    for (std::size_t i = 0; i < sending.moves.size(); ++i) {
      const PointToPointBackend::Move& out = sending.moves[i];
      auto& other = queues[out.peer];
      if (sending.done[i] || out.direction == PointToPointBackend::Move::Direction::in || other.empty()) {
        continue;
      }
      Transfer& receiving = *other.front();
      for (std::size_t j = 0; j < receiving.moves.size(); ++j) {
        PointToPointBackend::Move& in = receiving.moves[j];
        if (!receiving.done[j] && in.direction == PointToPointBackend::Move::Direction::in && in.peer == from) {
          if (in.tensor.bytes() != out.tensor.bytes() || in.tag != out.tag) {
            throw BackendError("test backend: a tensor of another size or tag");
          }
          std::memcpy(in.tensor.raw_mutable_data(), out.tensor.raw_data(), in.tensor.bytes());
          sending.done[i] = receiving.done[j] = moved = true;
          break;
        }
      }
    }
    return moved;
  }

  /// When all ranks have come to a sum: adds up in an order of its own, from the last rank to the first.
  static bool sum_up(const Group& group, Queues& queues) {
    std::vector<Transfer*> all;
    for (auto& [rank, queue] : queues) {
      if (!queue.empty() && queue.front()->sum.defined()) {
        all.push_back(queue.front().get());
      }
    }
    if (all.empty() || all.size() < static_cast<std::size_t>(group.size)) {
      return false;
    }
    std::vector<Tensor> parts;
    std::transform(all.rbegin(), all.rend(), std::back_inserter(parts),
                   [](const Transfer* transfer) { return transfer->sum.clone().to(Device{}); });
    const Tensor sum = ordered_sum(parts);
    for (Transfer* transfer : all) {
      std::exchange(transfer->sum, {}).copy_from(sum);
    }
    return true;
  }
};

class TestBackend final : public PointToPointBackend {
 public:
  TestBackend(std::shared_ptr<TestHub> hub, std::string group, int rank, int size)
      : hub_(std::move(hub)), group_(std::move(group)), rank_(rank), size_(size) {
    const std::lock_guard lock(hub_->mutex);
    this->group().size = size;
  }

  void introduce_by(Introductions introductions) override { introductions_ = std::move(introductions); }

  /// As with NCCL a direction between two ranks needs to be introduced, before anything moves there.
  std::shared_ptr<Transfer> start(Move message) override {
    const bool sends = message.direction == Move::Direction::out;
    const int peer = message.peer;
    if (sends && told_.insert(peer).second) {
      introductions_.tell(peer, "hello\nfrom " + group_);
    }
    const TestHub::Channel channel = sends ? std::pair(rank_, peer) : std::pair(peer, rank_);
    auto transfer = std::make_shared<TestHub::Transfer>();
    transfer->moves.push_back(std::move(message));
    transfer->done.resize(1);
    if (sends || heard_.contains(peer)) {
      begin(channel, transfer);
    } else {
      waiting_[peer].push_back(transfer);
      advance();
    }
    return std::make_shared<Pending>(hub_, transfer);
  }

  std::shared_ptr<Transfer> exchange(std::vector<Move> moves) override {
    auto transfer = std::make_shared<TestHub::Transfer>();
    transfer->done.resize(moves.size());
    transfer->moves = std::move(moves);
    begin(TestHub::kAll, transfer);
    return std::make_shared<Pending>(hub_, transfer);
  }

  std::shared_ptr<Transfer> all_reduce(Tensor tensor) override {
    auto transfer = std::make_shared<TestHub::Transfer>();
    transfer->sum = std::move(tensor);
    begin(TestHub::kAll, transfer);
    return std::make_shared<Pending>(hub_, transfer);
  }

  void advance() override {
    for (auto& [peer, transfers] : waiting_) {
      if (heard_.contains(peer) || (!transfers.empty() && introductions_.heard(peer).has_value())) {
        heard_.insert(peer);
        for (const auto& transfer : std::exchange(transfers, {})) {
          begin({peer, rank_}, transfer);
        }
      }
    }
  }

  std::unique_ptr<PointToPointBackend> split(int colour, int key, const Poll& poll) override {
    const std::size_t number = splits_++;
    {
      const std::lock_guard lock(hub_->mutex);
      group().splits.resize(std::max(group().splits.size(), number + 1));
      group().splits[number].push_back({colour, key, rank_});
    }
    const auto came = [&] {
      const std::lock_guard lock(hub_->mutex);
      return group().splits[number];
    };
    while (came().size() < static_cast<std::size_t>(size_)) {
      poll();
    }
    int rank = 0;
    int size = 0;
    for (const TestHub::Choice& choice : came()) {
      if (choice.colour == colour) {
        ++size;
        rank += std::tie(choice.key, choice.rank) < std::tie(key, rank_) ? 1 : 0;
      }
    }
    return std::make_unique<TestBackend>(hub_, group_ + "." + std::to_string(number) + ":" + std::to_string(colour),
                                         rank, size);
  }

  void abort() noexcept override {
    const std::lock_guard lock(hub_->mutex);
    for (auto& [channel, queues] : group().channels) {
      queues[rank_].clear();
    }
  }
  void close() noexcept override {}

 private:
  class Pending final : public Transfer {
   public:
    Pending(std::shared_ptr<TestHub> hub, std::shared_ptr<TestHub::Transfer> transfer)
        : hub_(std::move(hub)), transfer_(std::move(transfer)) {}
    bool is_done() override {
      const std::lock_guard lock(hub_->mutex);
      return transfer_->is_done();
    }

   private:
    std::shared_ptr<TestHub> hub_;
    std::shared_ptr<TestHub::Transfer> transfer_;
  };
  TestHub::Group& group() { return hub_->groups[group_]; }
  void begin(TestHub::Channel channel, const std::shared_ptr<TestHub::Transfer>& transfer) {
    const std::lock_guard lock(hub_->mutex);
    group().channels[channel][rank_].push_back(transfer);
    TestHub::advance(group(), channel);
  }

  std::shared_ptr<TestHub> hub_;
  std::string group_;
  int rank_;
  int size_;
  std::size_t splits_ = 0;
  Introductions introductions_;
  std::set<int> told_;
  std::set<int> heard_;
  std::map<int, std::vector<std::shared_ptr<TestHub::Transfer>>> waiting_;  // for an introduction, by the sender
};

}  // namespace stagecoach::test
