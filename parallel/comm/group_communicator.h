#pragma once
/// @file
/// What the communicators of all transports have in common: who is in the group, the context of their errors, and the
/// record of what they did.

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "parallel/comm/activity.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/flight_recorder.h"

namespace stagecoach {

/// A group as one of its ranks sees it.
struct Group {
  std::string name;          ///< the same on all its ranks, and unique in the world
  int rank = 0;              ///< this one's number in the group
  std::vector<int> members;  ///< the numbers that its ranks have in the whole world; errors name ranks by these
  Device device;
  std::shared_ptr<Clock> clock;  ///< of the thread that uses the communicator
  std::shared_ptr<FlightRecorder> recorder;
  ReduceKind reduce = ReduceKind::ordered;
};

class GroupCommunicator : public Communicator {
 public:
  explicit GroupCommunicator(Group group) : group_(std::move(group)) {}

  int rank() const override { return group_.rank; }
  int size() const override { return static_cast<int>(group_.members.size()); }
  Device device() const override { return group_.device; }
  Clock& clock() override { return *group_.clock; }
  void leave_record_in(const std::filesystem::path& folder) override { group_.recorder->leave_in(folder); }

 protected:
  const Group& group() const { return group_; }
  /// What rank `rank` of the group is called in the whole world.
  int member(int rank) const { return group_.members[static_cast<std::size_t>(rank)]; }

  /// Throws Error unless `peer` is another rank of the group and `tag` may be one.
  void require_peer(const char* operation, int peer, int tag) const;
  void require_root(const char* operation, int root) const;
  void require_here(const char* operation, const Tensor& tensor) const;
  /// Throws Error unless reduce_scatter can divide the first dimension among the ranks.
  void require_parts(const Tensor& tensor) const;
  /// "rank 3: receive from rank 2, tag 4, in the forward of stage 3, micro-batch 0"
  std::string doing(const char* operation) const { return doing(operation, ""); }
  std::string doing(const char* operation, const std::string& details) const;
  /// `direction` is "to" or "from".
  std::string doing(const char* operation, const char* direction, int peer, int tag) const;
  /// The same of a receive that is waited for now, and was `posted` in other work.
  std::string doing_receive(int from, int tag, const Activity::Work& posted) const;

  // Errors of ranks that disagree.
  /// Rank `other` of the group is in another operation, named `theirs`.
  CommError other_operation(const char* operation, int other, const std::string& theirs) const;
  /// Rank `other` brought a tensor of type `theirs` to a collective.
  CommError other_type(const char* operation, const Tensor& mine, int other, const std::string& theirs) const;
  /// A message is of another type than the receiver expects; `context` names the call.
  static CommError unexpected(const std::string& context, const std::string& wanted, const std::string& came);

  /// A message for the flight record.
  FlightRecorder::Event message_event(const char* operation, int peer, int tag, DType dtype, const Shape& shape) const;
  /// A collective.
  FlightRecorder::Event event(const char* operation, const Tensor& tensor) const;

  /// What a rank chose in a split.
  struct Choice {
    int colour;
    int key;
    int rank;
  };
  /// The group of those who chose what this rank did. All groups split from this one one after another get other names.
  Group chosen_from(std::vector<Choice> choices);
  /// The same ranks under another name, with a clock for another thread.
  Group duplicated();

 private:
  Group group_;
  int splits_ = 0;
  int duplicates_ = 0;
};

/// "float32[2, 3]"
std::string type_of(const Shape& shape, DType dtype);
std::string type_of(const Tensor& tensor);

}  // namespace stagecoach
