#pragma once
/// @file
/// What the communicators of all transports have in common: the group, how it waits, the context of errors, and the
/// flight record.

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "core/trace.h"
#include "parallel/comm/activity.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/flight_recorder.h"
#include "parallel/comm/sent_bytes.h"
#include "parallel/comm/wait_policy.h"

namespace stagecoach {

/// A group, as seen by one of its ranks.
struct Group {
  std::string name;          ///< the same on all its ranks, and unique in the world
  int rank = 0;              ///< this rank's number in the group
  std::vector<int> members;  ///< world ranks of the group's members; errors name ranks by these
  Device device;
  std::shared_ptr<Clock> clock;  ///< clock of the thread that uses the communicator
  std::shared_ptr<FlightRecorder> recorder;
  ReduceKind reduce = ReduceKind::ordered;
  std::shared_ptr<SentBytes> sent = std::make_shared<SentBytes>();  ///< of the rank; groups made from this one share it
};

class GroupCommunicator : public Communicator {
 public:
  /// `mode` and `may_spin` say how the waits of this communicator wait.
  explicit GroupCommunicator(Group group, WaitMode mode = WaitMode::sleeping, bool may_spin = true)
      : group_(std::move(group)), wait_policy_{mode, aborted_.get_token(), may_spin} {}

  int rank() const override { return group_.rank; }
  int size() const override { return static_cast<int>(group_.members.size()); }
  Device device() const override { return group_.device; }
  Clock& clock() override { return *group_.clock; }
  const Link& link_to(int rank) override { return clock().network().between(member(group_.rank), member(rank)); }
  std::map<int, double> bytes_sent() const override { return group_.sent->by_receiver(); }
  void set_spinning(bool spinning) override { wait_policy_.may_spin = spinning; }
  void leave_record_in(const std::filesystem::path& folder) override { group_.recorder->leave_in(folder); }
  void stop_recording() override { group_.recorder = std::make_shared<FlightRecorder>(); }
  void renew_waits() override { wait_policy_.renewed = std::chrono::steady_clock::now(); }
  void abort() override { aborted_.request_stop(); }

 protected:
  const Group& group() const { return group_; }
  const WaitPolicy& wait_policy() const { return wait_policy_; }
  /// Returns the world rank of rank `rank` of the group.
  int member(int rank) const { return group_.members[static_cast<std::size_t>(rank)]; }
  /// Returns the link that decides how long this group's collectives take.
  const Link& slowest_link() const { return group_.clock->network().among(group_.members); }

  // Counting for bytes_sent().
  /// Counts a message to rank `to` of the group.
  void count_message(int to, double bytes) const { group_.sent->add(member(to), bytes); }

  /// Throws Error unless `peer` is another rank of the group and `tag` is valid.
  void require_peer(const char* operation, int peer, int tag) const;
  void require_root(const char* operation, int root) const;
  void require_here(const char* operation, const Tensor& tensor) const;
  /// Throws Error unless reduce_scatter can divide the first dimension among the ranks.
  void require_parts(const Tensor& tensor) const;
  /// Returns text such as "rank 3: receive from rank 2, tag 4, in the forward of stage 3, micro-batch 0".
  std::string error_context(const char* operation) const { return error_context(operation, ""); }
  std::string error_context(const char* operation, const std::string& details) const;
  /// `direction` is "to" or "from".
  std::string error_context(const char* operation, const char* direction, int peer, int tag) const;
  /// Describes a send that was started during the work `started`.
  std::string send_context(int to, int tag, const Activity::Work& started) const;
  /// Describes a receive that is waited for now and was posted during the work `posted`.
  std::string receive_context(int from, int tag, const Activity::Work& posted) const;

  // Errors for ranks that disagree.
  /// Returns the error for rank `other` of the group being in another operation, `theirs`.
  CommError other_operation(const char* operation, int other, const std::string& theirs) const;
  /// Returns the error for rank `other` passing a tensor of type `theirs` to a collective.
  CommError other_type(const char* operation, const Tensor& mine, int other, const std::string& theirs) const;
  /// Returns the error for a message whose type differs from the one that the receiver expects; `context` names the
  /// call.
  static CommError unexpected(const std::string& context, const std::string& wanted, const std::string& came);

  // For the trace of the calling thread, if it has one.
  /// Records that this rank sends a message; 0 bytes: of a size that is not known.
  void trace_send(int to, int tag, std::size_t bytes) const;
  /// Records that this rank uses a message from now on. `arrival` is when the message arrived, by this rank's clock;
  /// between processes by the wall clock, that is the end of the wait.
  void trace_use(int from, int tag, double arrival) const;

  /// The links that the data of a collective takes, as its cost is modelled (link.h).
  enum class Route {
    none,
    ring_all_reduce,  ///< a ring is from each rank to the next one
    ring_reduce_scatter,
    ring_all_gather,
    to_root,    ///< from each other rank to the root
    from_root,  ///< down a tree from the root
  };
  class CollectiveScope;

  /// Returns the flight record's event for a message.
  FlightRecorder::Event message_event(const char* operation, int peer, int tag, DType dtype, const Shape& shape) const;
  /// Returns the flight record's event for a collective.
  FlightRecorder::Event event(const char* operation, const Tensor& tensor) const;

  /// The arguments that one rank passed to split().
  struct Choice {
    int colour;
    int key;
    int rank;
  };
  /// Returns the group of the ranks that chose the same colour as this rank. Successive splits give distinct names.
  Group chosen_from(std::vector<Choice> choices);
  /// Returns a group of the same ranks under another name, with a clock for another thread.
  Group duplicated();

 private:
  /// The ranks to which this rank sends in a collective, and those from which it receives.
  struct Links {
    std::vector<int> to;
    std::vector<int> from;
  };
  Links links(Route route, int root) const;
  static bool is_ring(Route route) { return route >= Route::ring_all_reduce && route <= Route::ring_all_gather; }
  /// Returns what a collective of a tensor of `bytes` sends on each of its links.
  double bytes_per_link(Route route, double bytes) const;
  /// Returns the channel in the trace of the messages with this tag from one rank of the group to another.
  std::string channel(int from, int to, int tag) const;

  Group group_;
  std::stop_source aborted_;
  WaitPolicy wait_policy_;
  int splits_ = 0;
  int duplicates_ = 0;
};

/// Marks the rank as being in a collective until the end of the scope, for the flight record and the trace, and counts
/// what it sends. Only a collective within another span, as part of a step, is on the tracks of the links.
class GroupCommunicator::CollectiveScope {
 public:
  /// For a collective without a tensor.
  CollectiveScope(GroupCommunicator& comm, const char* operation)
      : CollectiveScope(comm, {.operation = operation, .group = comm.group().name}, 0, Route::none, 0) {}
  CollectiveScope(GroupCommunicator& comm, const char* operation, const Tensor& tensor, Route route, int root = 0)
      : CollectiveScope(comm, comm.event(operation, tensor), tensor.bytes(), route, root) {}
  ~CollectiveScope();
  CollectiveScope(const CollectiveScope&) = delete;
  CollectiveScope& operator=(const CollectiveScope&) = delete;

 private:
  static constexpr int kTag = -1;  // in the trace

  CollectiveScope(GroupCommunicator& comm, const FlightRecorder::Event& event, std::size_t bytes, Route route,
                  int root);

  GroupCommunicator& comm_;
  const Links links_;
  const bool is_shown_;  // before span_
  const Recorded recorded_;
  Span span_;
};

/// Returns text such as "float32[2, 3]".
std::string type_of(const Shape& shape, DType dtype);
std::string type_of(const Tensor& tensor);
inline double bytes_of(const Tensor& tensor) { return static_cast<double>(tensor.bytes()); }

}  // namespace stagecoach
