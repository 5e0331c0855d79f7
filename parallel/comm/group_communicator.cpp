#include "parallel/comm/group_communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace stagecoach {

std::string type_of(const Shape& shape, DType dtype) { return fmt::format("{}{}", name_of(dtype), to_string(shape)); }

std::string type_of(const Tensor& tensor) { return type_of(tensor.shape(), tensor.dtype()); }

std::string GroupCommunicator::doing(const char* operation, const std::string& details) const {
  const std::string activity = current_activity();
  return fmt::format("rank {}: {}{}{}{}", member(rank()), operation, details, activity.empty() ? "" : ", in the ",
                     activity);
}

std::string GroupCommunicator::doing(const char* operation, const char* direction, int peer, int tag) const {
  return doing(operation, fmt::format(" {} rank {}, tag {}", direction, member(peer), tag));
}

std::string GroupCommunicator::doing_receive(int from, int tag, const Activity::Work& posted) const {
  const std::string context = doing("receive", "from", from, tag);
  const std::string then = to_string(posted);
  return then.empty() || then == current_activity() ? context : fmt::format("{} (posted in the {})", context, then);
}

void GroupCommunicator::require_peer(const char* operation, int peer, int tag) const {
  STAGECOACH_CHECK(peer >= 0 && peer < size() && peer != rank() && tag >= 0 && tag <= kMaxTag,
                   "{}: rank {} of a group of {} and tag {} (another rank and a tag from 0 to {} are needed)",
                   doing(operation), peer, size(), tag, kMaxTag);
}

void GroupCommunicator::require_root(const char* operation, int root) const {
  STAGECOACH_CHECK(root >= 0 && root < size(), "{}: root {} of a group of {}", doing(operation), root, size());
}

void GroupCommunicator::require_here(const char* operation, const Tensor& tensor) const {
  STAGECOACH_CHECK(tensor.device() == device(), "{}: {} is not on this rank's device {}", doing(operation),
                   describe(tensor), to_string(device()));
}

void GroupCommunicator::require_parts(const Tensor& tensor) const {
  STAGECOACH_CHECK(tensor.dims() > 0 && tensor.size(0) % size() == 0, "{}: {} cannot be divided among {} ranks",
                   doing("reduce_scatter"), describe(tensor), size());
}

CommError GroupCommunicator::other_operation(const char* operation, int other, const std::string& theirs) const {
  return CommError(
      fmt::format("{}: rank {} calls {} at this point; all ranks of a group call the same ones in the same order",
                  doing(operation), member(other), theirs));
}

CommError GroupCommunicator::other_type(const char* operation, const Tensor& mine, int other,
                                        const std::string& theirs) const {
  return CommError(fmt::format("{}: {} here, {} on rank {}", doing(operation), type_of(mine), theirs, member(other)));
}

CommError GroupCommunicator::unexpected(const std::string& context, const std::string& wanted,
                                        const std::string& came) {
  return CommError(fmt::format("{}: expected {}, got {}", context, wanted, came));
}

FlightRecorder::Event GroupCommunicator::message_event(const char* operation, int peer, int tag, DType dtype,
                                                       const Shape& shape) const {
  return {
      .operation = operation, .group = group_.name, .peer = member(peer), .tag = tag, .dtype = dtype, .shape = shape};
}

FlightRecorder::Event GroupCommunicator::event(const char* operation, const Tensor& tensor) const {
  return {.operation = operation, .group = group_.name, .dtype = tensor.dtype(), .shape = tensor.shape()};
}

Group GroupCommunicator::chosen_from(std::vector<Choice> choices) {
  const int colour = choices[static_cast<std::size_t>(rank())].colour;
  std::erase_if(choices, [&](const Choice& choice) { return choice.colour != colour; });
  std::sort(choices.begin(), choices.end(),
            [](const Choice& a, const Choice& b) { return std::pair(a.key, a.rank) < std::pair(b.key, b.rank); });
  Group part = group_;
  part.name = fmt::format("{}.{}:{}", group_.name, splits_++, colour);
  part.members.clear();
  for (const Choice& choice : choices) {
    if (choice.rank == rank()) {
      part.rank = static_cast<int>(part.members.size());
    }
    part.members.push_back(member(choice.rank));
  }
  return part;
}

Group GroupCommunicator::duplicated() {
  Group copy = group_;
  copy.name = fmt::format("{}+{}", group_.name, duplicates_++);
  copy.clock = group_.clock->another();
  return copy;
}

}  // namespace stagecoach
