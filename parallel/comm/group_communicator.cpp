#include "parallel/comm/group_communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace stagecoach {

std::string type_of(const Shape& shape, DType dtype) { return fmt::format("{}{}", name_of(dtype), to_string(shape)); }

std::string type_of(const Tensor& tensor) { return type_of(tensor.shape(), tensor.dtype()); }

std::string GroupCommunicator::error_context(const char* operation, const std::string& details) const {
  const std::string activity = current_activity();
  return fmt::format("rank {}: {}{}{}{}", member(rank()), operation, details, activity.empty() ? "" : ", in the ",
                     activity);
}

std::string GroupCommunicator::error_context(const char* operation, const char* direction, int peer, int tag) const {
  return error_context(operation, fmt::format(" {} rank {}, tag {}", direction, member(peer), tag));
}

std::string GroupCommunicator::send_context(int to, int tag, const Activity::Work& started) const {
  const Activity then(started.operation, started.stage, started.microbatch);
  return error_context("send", "to", to, tag);
}

std::string GroupCommunicator::receive_context(int from, int tag, const Activity::Work& posted) const {
  const std::string context = error_context("receive", "from", from, tag);
  const std::string then = to_string(posted);
  return then.empty() || then == current_activity() ? context : fmt::format("{} (posted in the {})", context, then);
}

void GroupCommunicator::require_peer(const char* operation, int peer, int tag) const {
  STAGECOACH_CHECK(peer >= 0 && peer < size() && peer != rank() && tag >= 0 && tag <= kMaxTag,
                   "{0}: expected another rank of the group and a tag from 0 to {4}, got rank {1} of {2} and tag {3}",
                   error_context(operation), peer, size(), tag, kMaxTag);
}

void GroupCommunicator::require_root(const char* operation, int root) const {
  STAGECOACH_CHECK(root >= 0 && root < size(),
                   "{}: expected a root of at least 0 and less than the group's size, got {} of {}",
                   error_context(operation), root, size());
}

void GroupCommunicator::require_here(const char* operation, const Tensor& tensor) const {
  STAGECOACH_CHECK(tensor.device() == device(), "{}: expected a tensor on this rank's device, got {} for {}",
                   error_context(operation), describe(tensor), to_string(device()));
}

void GroupCommunicator::require_parts(const Tensor& tensor) const {
  STAGECOACH_CHECK(tensor.dims() > 0 && tensor.size(0) % size() == 0,
                   "{}: the first extent of {} cannot be divided evenly among {} ranks",
                   error_context("reduce_scatter"), describe(tensor), size());
}

CommError GroupCommunicator::other_operation(const char* operation, int other, const std::string& theirs) const {
  return CommError(fmt::format(
      "{}: rank {} calls {} at this point; let all ranks of a group call the same collectives in the same order",
      error_context(operation), member(other), theirs));
}

CommError GroupCommunicator::other_type(const char* operation, const Tensor& mine, int other,
                                        const std::string& theirs) const {
  return CommError(fmt::format("{}: expected tensors of the same shape and type, got {} here and {} on rank {}",
                               error_context(operation), type_of(mine), theirs, member(other)));
}

CommError GroupCommunicator::unexpected(const std::string& context, const std::string& wanted,
                                        const std::string& came) {
  return CommError(fmt::format("{}: expected {}, got {}", context, wanted, came));
}

std::string GroupCommunicator::channel(int from, int to, int tag) const {
  return fmt::format("{}/{}/{}/{}", group_.name, member(from), member(to), tag);
}

void GroupCommunicator::trace_send(int to, int tag, std::size_t bytes) const {
  if (Trace::current() != nullptr) {
    record_send(channel(rank(), to, tag), bytes);
  }
}

void GroupCommunicator::trace_use(int from, int tag, double arrival) const {
  if (Trace::current() != nullptr) {
    record_use(channel(from, rank(), tag), arrival);
  }
}

double GroupCommunicator::bytes_per_link(Route route, double bytes) const {
  switch (route) {
    case Route::ring_all_reduce:
      return 2 * (size() - 1) * (bytes / size());
    case Route::ring_reduce_scatter:
      return (size() - 1) * (bytes / size());
    case Route::ring_all_gather:
      return (size() - 1) * bytes;
    default:
      return bytes;
  }
}

GroupCommunicator::Links GroupCommunicator::links(Route route, int root) const {
  const int above = (rank() - root + size()) % size();  // this rank's number, counted from the root
  const auto counted_from_root = [&](int number) { return (root + number) % size(); };
  Links links;
  if (is_ring(route) && size() > 1) {
    links = {.to = {(rank() + 1) % size()}, .from = {(rank() + size() - 1) % size()}};
  } else if (route == Route::to_root && above > 0) {
    links.to = {root};
  } else if (route == Route::to_root) {
    for (int other = 1; other < size(); ++other) {
      links.from.push_back(counted_from_root(other));
    }
  } else if (route == Route::from_root) {
    for (int have = 1; have < size(); have *= 2) {  // in each round, the ranks that have the data pass it on
      if (above < have && above + have < size()) {
        links.to.push_back(counted_from_root(above + have));
      } else if (above >= have && above < 2 * have) {
        links.from.push_back(counted_from_root(above - have));
      }
    }
  }
  return links;
}

GroupCommunicator::CollectiveScope::CollectiveScope(GroupCommunicator& comm, const FlightRecorder::Event& event,
                                                    std::size_t bytes, Route route, int root)
    : comm_(comm),
      links_(comm.links(route, root)),
      is_shown_(is_in_span()),
      recorded_(*comm.group_.recorder, event),
      span_(event.operation, "wait") {
  span_.set_bytes(bytes);
  const double sent = comm.bytes_per_link(route, static_cast<double>(bytes));
  for (const int to : links_.to) {
    comm.count_message(to, sent);
    if (is_shown_) {
      comm.trace_send(to, kTag, static_cast<std::size_t>(sent));
    }
  }
}

GroupCommunicator::CollectiveScope::~CollectiveScope() {
  for (const int from : links_.from) {
    if (is_shown_) {
      comm_.trace_use(from, kTag, comm_.clock().now());
    }
  }
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
