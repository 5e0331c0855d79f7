#include "tests/labs/watched_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>
#include <tuple>

#include "core/base/throw_if.h"
#include "tests/labs/grading.h"

namespace stagecoach::labs {
namespace {

/// Ends the other ranks after a failure.
struct Stopped {};

/// One end of a message, and the message once it has both.
struct End {
  bool is_send;
  int rank;
  int peer;
  int tag;
  Tensor tensor = {};  ///< of a send, and of a receive that is done
  Shape shape = {};    ///< that a receive expects
  DType dtype = DType::float32;
  bool done = false;
};
using EndPointer = std::shared_ptr<End>;

std::string to_string(const End& end) {
  return end.is_send ? fmt::format("send to rank {}, tag {}", end.peer, end.tag)
                     : fmt::format("receive from rank {}, tag {}", end.peer, end.tag);
}

/// What all ranks share. All members lock the mutex themselves.
class Exchange {
 public:
  Exchange(int ranks, std::string look_at, Calls calls)
      : states_(static_cast<std::size_t>(ranks)), look_at_(std::move(look_at)), calls_(calls) {}

  EndPointer begin(End end) {
    const std::lock_guard lock(mutex_);
    State& state = states_[static_cast<std::size_t>(end.rank)];
    if (calls_ == Calls::waiting_only && !state.not_waited.empty()) {
      throw Failed("calls that wait: send and receive",
                   fmt::format("rank {} begins a {} before it has waited for its {}", end.rank, to_string(end),
                               to_string(*state.not_waited.front())),
                   look_at_);
    }
    const auto mine = std::make_shared<End>(std::move(end));
    state.not_waited.push_back(mine);
    if (mine->is_send) {
      state.sent.push_back(mine);
    }
    const auto [from, to] = mine->is_send ? std::pair(mine->rank, mine->peer) : std::pair(mine->peer, mine->rank);
    std::deque<EndPointer>& waiting = unmatched_[{from, to, mine->tag}];
    if (!waiting.empty() && waiting.front()->is_send != mine->is_send) {
      match(mine->is_send ? *mine : *waiting.front(), mine->is_send ? *waiting.front() : *mine);
      waiting.pop_front();
      changed_.notify_all();
    } else {
      waiting.push_back(mine);
    }
    return mine;
  }

  void wait(const EndPointer& end) {
    std::unique_lock lock(mutex_);
    State& state = states_[static_cast<std::size_t>(end->rank)];
    std::erase(state.not_waited, end);
    state.waits_for = end;
    find_deadlock();
    changed_.wait(lock, [&] { return end->done || is_stopped_; });
    state.waits_for = nullptr;
    if (!end->done) {
      throw Stopped();
    }
  }

  bool is_done(const EndPointer& end) {
    const std::lock_guard lock(mutex_);
    if (end->done) {
      std::erase(states_[static_cast<std::size_t>(end->rank)].not_waited, end);
    }
    return end->done;
  }

  void require_sends_waited_for(int rank, const std::string& look_at) const {
    const std::lock_guard lock(mutex_);
    for (const EndPointer& end : states_[static_cast<std::size_t>(rank)].not_waited) {
      if (end->is_send) {
        throw Failed("all sends have been waited for before the function returns",
                     fmt::format("rank {} has not waited for its {}", rank, to_string(*end)), look_at);
      }
    }
  }

  void begin_step(int rank, int step) {
    const std::lock_guard lock(mutex_);
    states_[static_cast<std::size_t>(rank)].step = step;
  }
  /// A rank has returned.
  void end_rank(int rank) {
    const std::lock_guard lock(mutex_);
    states_[static_cast<std::size_t>(rank)].has_ended = true;
    find_deadlock();
  }
  void stop() {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
    changed_.notify_all();
  }

  /// Called after all ranks have ended.
  void throw_if_deadlock() const {
    if (deadlock_) {
      throw Failed("every rank returns" + for_case(), *deadlock_, look_at_);
    }
  }
  /// Called after all ranks have returned.
  std::vector<Message> messages() const {
    for (const auto& [address, ends] : unmatched_) {
      if (!ends.empty()) {
        throw Failed(
            (ends.front()->is_send ? "every message is received" : "every posted receive gets a message") + for_case(),
            fmt::format("rank {} began a {}, which rank {} does not have", ends.front()->rank, to_string(*ends.front()),
                        ends.front()->peer),
            look_at_);
      }
    }
    std::vector<Message> all;
    for (const State& state : states_) {
      for (const EndPointer& sent : state.sent) {
        all.push_back({sent->rank, sent->peer, sent->tag, sent->tensor.shape()});
      }
    }
    return all;
  }

 private:
  struct State {
    EndPointer waits_for = nullptr;
    bool has_ended = false;
    int step = 0;
    std::vector<EndPointer> not_waited = {};
    std::vector<EndPointer> sent = {};
  };

  void match(End& send, End& receive) const {
    if (send.tensor.shape() != receive.shape || send.tensor.dtype() != receive.dtype) {
      const auto form = [](DType dtype, const Shape& shape) {
        return fmt::format("{}{}", name_of(dtype), stagecoach::to_string(shape));
      };
      throw Failed("one rank sends what the other one waits for" + for_case(),
                   fmt::format("rank {} waits for {} with tag {}, but rank {} sends {}: one of them is wrong",
                               receive.rank, form(receive.dtype, receive.shape), send.tag, send.rank,
                               form(send.tensor.dtype(), send.tensor.shape())),
                   "what the contract says of shapes: " + look_at_);
    }
    receive.tensor = send.tensor.seen_from({DeviceType::cpu, receive.rank});
    send.done = true;
    receive.done = true;
  }

  void find_deadlock() {
    bool all_ended = true;
    for (const State& state : states_) {
      if (!state.has_ended && (state.waits_for == nullptr || state.waits_for->done)) {
        return;
      }
      all_ended = all_ended && state.has_ended;
    }
    if (!all_ended && !is_stopped_) {
      deadlock_ = circle();
      is_stopped_ = true;
      changed_.notify_all();
    }
  }

  /// Follows who waits for whom, from the first rank that waits, to a rank that came before or has ended.
  std::string circle() const {
    std::vector<int> chain;
    const auto has_ended = [&](int rank) { return states_[static_cast<std::size_t>(rank)].has_ended; };
    int rank = 0;
    while (has_ended(rank)) {
      ++rank;
    }
    while (!has_ended(rank) && std::find(chain.begin(), chain.end(), rank) == chain.end()) {
      chain.push_back(rank);
      rank = states_[static_cast<std::size_t>(rank)].waits_for->peer;
    }
    if (!has_ended(rank)) {
      chain.erase(chain.begin(), std::find(chain.begin(), chain.end(), rank));
    }
    const auto state = [&](int waiting) -> const State& { return states_[static_cast<std::size_t>(waiting)]; };
    const bool in_one_step =
        std::all_of(chain.begin(), chain.end(), [&](int r) { return state(r).step == state(chain.front()).step; });
    std::string text = "deadlock: ";
    for (const int waiting : chain) {
      text += fmt::format("{}rank {} waits{} in its {}", waiting == chain.front() ? "" : "; ", waiting,
                          in_one_step ? "" : fmt::format(", in step {},", state(waiting).step + 1),
                          to_string(*state(waiting).waits_for));
    }
    return has_ended(rank) ? text + fmt::format("; rank {} has returned", rank) : text;
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<State> states_;
  std::map<std::tuple<int, int, int>, std::deque<EndPointer>> unmatched_;  // by from, to and tag, oldest first
  std::optional<std::string> deadlock_;
  bool is_stopped_ = false;
  std::string look_at_;
  Calls calls_;
};

class WatchedCommunicator final : public Communicator {
 public:
  WatchedCommunicator(Exchange& exchange, int rank, int size)
      : Communicator(group_of(rank, size)), exchange_(exchange) {}

  PendingSend send_async(const Tensor& tensor, int to, int tag) override {
    require_peer("send", to, tag);
    STAGECOACH_CHECK(tensor.defined(), "send: expected a tensor, got an undefined one");
    const EndPointer end =
        exchange_.begin({.is_send = true, .rank = rank(), .peer = to, .tag = tag, .tensor = tensor.detach()});
    return {[this, end] { exchange_.wait(end); }, [this, end] { return exchange_.is_done(end); }};
  }
  PendingReceive receive_async(const Shape& shape, DType dtype, int from, int tag) override {
    require_peer("receive", from, tag);
    const EndPointer end =
        exchange_.begin({.is_send = false, .rank = rank(), .peer = from, .tag = tag, .shape = shape, .dtype = dtype});
    return PendingReceive([this, end] {
      exchange_.wait(end);
      return end->tensor;
    });
  }

  void send_number(double, int, int) override { refuse("send_number"); }
  double receive_number(int, int) override { refuse("receive_number"); }
  std::optional<double> try_receive_number(int, int) override { refuse("try_receive_number"); }
  void all_reduce(Tensor&) override { refuse("all_reduce"); }
  void reduce(Tensor&, int) override { refuse("reduce"); }
  void broadcast(Tensor&, int) override { refuse("broadcast"); }
  std::vector<Tensor> all_gather(const Tensor&) override { refuse("all_gather"); }
  void all_gather_into(Tensor&, const Tensor&) override { refuse("all_gather_into"); }
  Tensor reduce_scatter(const Tensor&) override { refuse("reduce_scatter"); }
  Tensor all_to_all(const Tensor&, const RowCounts&, const RowCounts&) override { refuse("all_to_all"); }
  void barrier() override { refuse("barrier"); }
  std::unique_ptr<Communicator> split(int, int) override { refuse("split"); }
  std::unique_ptr<Communicator> duplicate() override { refuse("duplicate"); }
  CommunicatorControls& controls() override { refuse("controls"); }

  void begin_step(int step) { exchange_.begin_step(rank(), step); }
  void require_sends_waited_for(const std::string& look_at) const {
    exchange_.require_sends_waited_for(rank(), look_at);
  }

 private:
  static Group group_of(int rank, int size) {
    std::vector<int> members(static_cast<std::size_t>(size));
    std::iota(members.begin(), members.end(), 0);
    const Device device{DeviceType::cpu, rank};
    return {"lab", rank, members, device, make_clock(ClockKind::wall, device, {}), nullptr};
  }
  void require_peer(const char* operation, int peer, int tag) const {
    STAGECOACH_CHECK(peer >= 0 && peer < size() && peer != rank() && tag >= 0 && tag <= kMaxTag,
                     "rank {}: {}: expected another rank of {} and a tag from 0 to {}, got rank {} and tag {}", rank(),
                     operation, size(), kMaxTag, peer, tag);
  }
  [[noreturn]] static void refuse(const char* call) {
    throw Error(fmt::format("{}: not in this lab; use send and receive, or send_async and receive_async", call));
  }

  Exchange& exchange_;
};

}  // namespace

std::vector<Message> run_watched(int ranks, const std::function<void(Communicator& comm)>& body,
                                 const std::string& look_at, Calls calls) {
  Exchange exchange(ranks, look_at, calls);
  std::vector<std::exception_ptr> failures(static_cast<std::size_t>(ranks));
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          WatchedCommunicator comm(exchange, rank, ranks);
          body(comm);
          exchange.end_rank(rank);
        } catch (const Stopped&) {
        } catch (...) {
          failures[static_cast<std::size_t>(rank)] = std::current_exception();
          exchange.stop();
        }
      });
    }
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure) {
      std::rethrow_exception(failure);
    }
  }
  exchange.throw_if_deadlock();
  return exchange.messages();
}

void begin_step(Communicator& comm, int step) { dynamic_cast<WatchedCommunicator&>(comm).begin_step(step); }

void require_sends_waited_for(Communicator& comm, const std::string& look_at) {
  dynamic_cast<WatchedCommunicator&>(comm).require_sends_waited_for(look_at);
}

}  // namespace stagecoach::labs
