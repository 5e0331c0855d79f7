#pragma once
/// @file
/// What the communicators of all transports have in common: checks, the context of errors, the flight record, the
/// trace, the count of bytes, and the modelled time of collectives. A transport implements how tensors move.

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "core/uncounted_memory.h"
#include "parallel/comm/activity.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/communicator_controls.h"
#include "parallel/comm/wait_policy.h"

namespace stagecoach {

/// The bytes that one rank sends to others in a collective, by receiver, and the ranks from which it receives.
struct CollectiveLinks {
  std::map<int, double> to = {};
  std::vector<int> from = {};
};

/// What the algorithm of link.h or network.h sends, and how long it takes from the time when the last rank begins.
struct CollectiveModel {
  double seconds = 0;
  CollectiveLinks links = {};
};

class GroupCommunicator : public Communicator, private CommunicatorControls {
 public:
  /// `mode` and `may_spin` say how the waits of this communicator wait.
  explicit GroupCommunicator(Group group, WaitMode mode = WaitMode::sleeping, bool may_spin = true)
      : Communicator(std::move(group)),
        recorder_(this->group().recorder),
        wait_policy_{mode, aborted_.get_token(), may_spin} {}

  PendingSend send_async(const Tensor& tensor, int to, int tag) final;
  PendingReceive receive_async(const Shape& shape, DType dtype, int from, int tag) final;
  void send_number(double number, int to, int tag) final;
  double receive_number(int from, int tag) final;
  std::optional<double> try_receive_number(int from, int tag) final;
  void all_reduce(Tensor& tensor) final;
  void reduce(Tensor& tensor, int root) final;
  void broadcast(Tensor& tensor, int root) final;
  std::vector<Tensor> all_gather(const Tensor& tensor) final;
  void all_gather_into(Tensor& whole, const Tensor& part) final;
  Tensor reduce_scatter(const Tensor& tensor) final;
  Tensor all_to_all(const Tensor& rows, const RowCounts& send_rows, const RowCounts& receive_rows) final;
  void barrier() final;
  std::unique_ptr<Communicator> split(int colour, int key) final;
  std::unique_ptr<Communicator> duplicate() final;
  CommunicatorControls& controls() final { return *this; }

 protected:
  // What a transport implements. Arguments are valid, and the caller keeps the records. Messages have a tag, and arrive
  // in the order of the sends, unless a transport documents otherwise. Errors begin with the text that `context`
  // returns.

  /// A message that this rank sends.
  class Outgoing {
   public:
    virtual ~Outgoing() = default;
    /// Waits until the receiver has the message. Returns when it got it, if the clock computes times.
    virtual double wait(const ErrorContext& context) = 0;
    /// Returns the same, or nothing if it is not known yet that the receiver has the message. Does not wait.
    virtual std::optional<double> completed_at() = 0;
  };
  /// A posted receive. If it is destroyed before anyone has waited for it, it is withdrawn.
  class Incoming {
   public:
    virtual ~Incoming() = default;
    Incoming() = default;
    Incoming(const Incoming&) = delete;
    Incoming& operator=(const Incoming&) = delete;
    /// Waits for the message. Returns when it arrived, by this rank's clock; between processes by the wall clock, that
    /// is the end of the wait.
    virtual double wait(const ErrorContext& context) = 0;
    /// Returns the tensor after the wait. wait() or take() throws CommError if it is not the expected one.
    virtual Tensor take(const ErrorContext& context) = 0;
  };
  virtual std::shared_ptr<Outgoing> start_send(const Tensor& tensor, int to, int tag, const ErrorContext& context) = 0;
  /// Posts a receive of a tensor on `device`: this rank's device, or, for a number, the CPU.
  virtual std::shared_ptr<Incoming> post_receive(const Shape& shape, DType dtype, Device device, int from, int tag,
                                                 const ErrorContext& context) = 0;
  // A number is sent as a tensor, unless the transport has a better way.
  virtual void start_number(double number, int to, int tag, const ErrorContext& context);
  /// Called during a wait.
  virtual double wait_for_number(int from, int tag, const ErrorContext& context);
  /// Returns a number that has arrived already, or nothing.
  virtual std::optional<double> poll_number(int from, int tag, const ErrorContext& context) = 0;

  // Collectives, on tensors on this rank's device. They throw CommError where other ranks are in another operation or
  // have a tensor of another shape or type, if the transport can tell.
  /// Returns the latest of the values that the ranks pass. Called during a wait, and not with the wall clock.
  virtual double latest_time(const char* operation, double mine) = 0;
  virtual void do_all_reduce(Tensor& tensor) = 0;
  virtual void do_reduce(Tensor& tensor, int root) = 0;
  virtual void do_broadcast(Tensor& tensor, int root) = 0;
  /// Errors name `operation`.
  virtual std::vector<Tensor> do_all_gather(const char* operation, const Tensor& tensor) = 0;
  /// Writes the parts of the other ranks; this rank's `part` is in `whole` already.
  virtual void do_all_gather_into(Tensor& whole, const Tensor& part) = 0;
  virtual Tensor do_reduce_scatter(const Tensor& tensor) = 0;
  virtual Tensor do_all_to_all(const Tensor& rows, const RowCounts& send_rows, const RowCounts& receive_rows) = 0;
  virtual void do_barrier() = 0;

  /// Returns the communicator of `part`, to which this rank belongs. All ranks of this group call it, each for its
  /// part.
  virtual std::unique_ptr<Communicator> make_part(Group part) = 0;
  /// Returns the communicator of `copy`, which has the same ranks as this group.
  virtual std::unique_ptr<Communicator> make_duplicate(Group copy) = 0;
  /// Makes a wait of this communicator check its policy again.
  virtual void wake() {}

  // What helps to implement it.
  const WaitPolicy& wait_policy() const { return wait_policy_; }
  /// Returns the world rank of rank `rank` of the group.
  int member(int rank) const { return group().member(rank); }
  /// Returns part `rank` of `whole` [size N, …] as an alias [N, …].
  Tensor part_of(const Tensor& whole, int rank) const;
  /// Returns the rows of each rank, counts[r] of them, as aliases of `whole` [N, …].
  static std::vector<Tensor> parts_of(const Tensor& whole, const RowCounts& counts);
  /// Returns an uninitialised tensor for all rows that an all-to-all of `rows` returns.
  static Tensor received_rows(const Tensor& rows, const RowCounts& receive_rows);
  /// Returns text such as "rank 3: receive from rank 2, tag 4, in the forward of stage 3, micro-batch 0".
  std::string error_context(const std::string& operation) const;
  /// Returns the error for rank `other` of the group being in another operation, `theirs`.
  CommError other_operation(const std::string& operation, int other, const std::string& theirs) const;
  /// Returns the error for rank `other` passing a tensor of type `theirs` to a collective.
  CommError other_type(const char* operation, const Tensor& mine, int other, const std::string& theirs) const;
  /// Returns the error for rank `from` of the group sending rows of type `sent` to rank `to`, which expects others.
  CommError other_rows(const char* operation, int from, const std::string& sent, int to,
                       const std::string& expected) const;
  /// Returns the error for a message whose type differs from the one that the receiver expects; `context` names the
  /// call.
  static CommError unexpected(const std::string& context, const std::string& expected, const std::string& got);

 private:
  void set_spinning(bool spinning) final;
  void renew_waits() final { wait_policy_.renewed = std::chrono::steady_clock::now(); }
  void abort() final;
  void leave_record_in(const std::filesystem::path& folder) final { recorder_->leave_in(folder); }
  void stop_recording() final { recorder_ = std::make_shared<FlightRecorder>(); }

  /// Throws Error unless `peer` is another rank of the group and `tag` is valid.
  void require_peer(const char* operation, int peer, int tag) const;
  void require_root(const char* operation, int root) const;
  void require_here(const char* operation, const Tensor& tensor) const;
  /// Throws Error unless `whole` can be divided evenly among the ranks.
  void require_divisible(const char* operation, const Tensor& whole) const;
  /// `direction` is "to" or "from".
  std::string message_context(const char* operation, const char* direction, int peer, int tag) const;
  /// Describes a send that was started during the work `started`.
  std::string send_context(int to, int tag, const Activity::Work& started) const;
  /// Describes a receive that is waited for now and was posted during the work `posted`.
  std::string receive_context(int from, int tag, const Activity::Work& posted) const;

  /// Throws Error unless the counts are possible for `rows`.
  void require_counts(const Tensor& rows, const RowCounts& send_rows, const RowCounts& receive_rows) const;
  /// Returns what an all-to-all of `rows` takes.
  CollectiveModel all_to_all_model(const Tensor& rows, const RowCounts& send_rows, const RowCounts& receive_rows) const;

  /// Returns the link that decides how long this group's collectives take.
  Link slowest_link() const;
  /// Returns what `exchange` returns. Keeps the records of the collective and counts what it sends; if the clock
  /// computes times, waits until all ranks have begun, and then for as long as `model` says. `tensor` may be null.
  template <class Exchange>
  auto collective(const char* operation, const Tensor* tensor, const CollectiveModel& model, const Exchange& exchange);
  /// Returns the group of the ranks that chose `colour`, with its siblings.
  Group part_of(int colour, const std::vector<Tensor>& choices);

  FlightRecorder::Event message_event(const char* operation, int peer, int tag, DType dtype, const Shape& shape) const;
  // For the trace of the calling thread, if it has one.
  /// Records that this rank sends a message; 0 bytes: of a size that is not known.
  void trace_send(int to, int tag, std::size_t bytes) const;
  /// Records that this rank uses a message from now on, which arrived at `arrival`.
  void trace_use(int from, int tag, double arrival) const;
  /// Returns the channel in the trace of the messages with this tag from one rank of the group to another.
  std::string channel(int from, int to, int tag) const;
  /// Waits for the message, and returns when it arrived.
  double wait_for(Incoming& incoming, const ErrorContext& context);

  /// How a transport moves tensors must not show on a modelled clock: as long as this exists, kernels take no time and
  /// tensors no memory.
  struct Unmodelled {
    explicit Unmodelled(Clock& clock) : waiting(clock) {}
    Waiting waiting;
    UncountedMemory memory = {};
  };
  /// Returns such an object on a modelled clock, otherwise nothing.
  std::optional<Unmodelled> unmodelled() const;
  /// Returns `tensor`, which a transport has made; on a modelled clock in memory of this rank.
  Tensor counted(const Tensor& tensor) const;

  std::shared_ptr<FlightRecorder> recorder_;
  std::stop_source aborted_;
  WaitPolicy wait_policy_;
  int splits_ = 0;
  int duplicates_ = 0;
};

/// Returns text such as "float32[2, 3]".
std::string type_of(const Shape& shape, DType dtype);
std::string type_of(const Tensor& tensor);
inline double bytes_of(const Tensor& tensor) { return static_cast<double>(tensor.bytes()); }

}  // namespace stagecoach
