#pragma once
/// @file
/// A wire between threads, for tests of what runs over NCCL without a GPU. It is as strict as a wire may be: nothing is
/// kept on the way, so a transfer goes on only when both its ranks have it at the head of a lane.

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "parallel/comm/wire.h"

namespace stagecoach::test {

/// What the ends of all wires of a world share.
class TestHub {
 public:
  struct Transfer {
    std::vector<Wire::Move> moves;
    std::vector<bool> done;
    bool is_done() const { return std::count(done.begin(), done.end(), false) == 0; }
  };
  struct Choice {
    int colour;
    int key;
    int rank;
  };
  /// Lanes of a group's ranks, and who has come to its splits.
  struct Group {
    std::map<std::pair<int, Wire::Lane>, std::deque<std::shared_ptr<Transfer>>> lanes;
    std::vector<std::vector<Choice>> splits;
  };

  std::mutex mutex;  // guards the groups
  std::map<std::string, Group> groups;

  /// Moves all that can move. The caller holds the mutex.
  static void advance(Group& group, Wire::Lane lane) {
    for (bool moved = true; moved;) {
      moved = false;
      for (auto& [end, queue] : group.lanes) {
        if (end.second == lane && !queue.empty()) {
          moved = advance(group, lane, end.first, *queue.front()) || moved;
        }
      }
      for (auto& [end, queue] : group.lanes) {
        if (!queue.empty() && queue.front()->is_done()) {
          queue.pop_front();
          moved = true;
        }
      }
    }
  }

 private:
  static bool advance(Group& group, Wire::Lane lane, int from, Transfer& sending) {
    bool moved = false;
    for (std::size_t i = 0; i < sending.moves.size(); ++i) {
      const Wire::Move& out = sending.moves[i];
      auto& other = group.lanes[{out.peer, lane}];
      if (sending.done[i] || out.way == Wire::Move::Way::in || other.empty()) {
        continue;
      }
      Transfer& receiving = *other.front();
      for (std::size_t j = 0; j < receiving.moves.size(); ++j) {
        Wire::Move& in = receiving.moves[j];
        if (!receiving.done[j] && in.way == Wire::Move::Way::in && in.peer == from) {
          if (in.tensor.bytes() != out.tensor.bytes()) {
            throw WireError("test wire: tensors of different sizes");
          }
          std::memcpy(in.tensor.raw_mutable_data(), out.tensor.raw_data(), in.tensor.bytes());
          sending.done[i] = receiving.done[j] = moved = true;
          break;
        }
      }
    }
    return moved;
  }
};

class TestWire final : public Wire {
 public:
  TestWire(std::shared_ptr<TestHub> hub, std::string group, int rank, int size)
      : hub_(std::move(hub)), group_(std::move(group)), rank_(rank), size_(size) {}

  std::shared_ptr<Transfer> start(Lane lane, std::vector<Move> moves) override {
    const std::lock_guard lock(hub_->mutex);
    auto transfer = std::make_shared<TestHub::Transfer>();
    transfer->done.resize(moves.size());
    transfer->moves = std::move(moves);
    group().lanes[{rank_, lane}].push_back(transfer);
    TestHub::advance(group(), lane);
    return std::make_shared<Pending>(hub_, transfer);
  }

  std::unique_ptr<Wire> split(int colour, int key, const Look& look) override {
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
      look();
    }
    int rank = 0;
    int size = 0;
    for (const TestHub::Choice& choice : came()) {
      if (choice.colour == colour) {
        ++size;
        rank += std::tie(choice.key, choice.rank) < std::tie(key, rank_) ? 1 : 0;
      }
    }
    return std::make_unique<TestWire>(hub_, group_ + "." + std::to_string(number) + ":" + std::to_string(colour), rank,
                                      size);
  }

  void abort() noexcept override {
    const std::lock_guard lock(hub_->mutex);
    for (const Lane lane : {Lane::up, Lane::down}) {
      group().lanes[{rank_, lane}].clear();
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

  std::shared_ptr<TestHub> hub_;
  std::string group_;
  int rank_;
  int size_;
  std::size_t splits_ = 0;
};

}  // namespace stagecoach::test
