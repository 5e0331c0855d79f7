#include "parallel/comm/thread_communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/kernels/kernels.h"
#include "core/trace.h"
#include "parallel/comm/activity.h"

namespace stagecoach {
namespace {

std::string type_of(const Shape& shape, DType dtype) { return fmt::format("{}{}", name_of(dtype), to_string(shape)); }

double bytes_of(const Tensor& tensor) { return static_cast<double>(tensor.bytes()); }

/// A copy in the other of the types float16 and float32.
Tensor converted(const Tensor& tensor, DType dtype) {
  Tensor copy = Tensor::empty(tensor.shape(), dtype, tensor.device());
  kernels(tensor.device()).convert(tensor, copy);
  return copy;
}

/// The part of rank `rank` when `count` elements are dealt to `size` ranks.
std::int64_t part_start(std::int64_t count, int rank, int size) { return count * rank / size; }

}  // namespace

ThreadCommunicator::ThreadCommunicator(std::shared_ptr<ThreadWorld> world, std::string group, int rank,
                                       std::vector<int> members, Device device, std::shared_ptr<Clock> clock,
                                       ThreadWorld::Waits waits)
    : world_(std::move(world)),
      group_(std::move(group)),
      rank_(rank),
      members_(std::move(members)),
      device_(device),
      clock_(std::move(clock)),
      patience_{waits, abandoned_.get_token()} {}

std::string ThreadCommunicator::doing(const char* operation, const std::string& details) const {
  const std::string activity = current_activity();
  return fmt::format("rank {}: {}{}{}{}", members_[static_cast<std::size_t>(rank_)], operation, details,
                     activity.empty() ? "" : ", in the ", activity);
}

ThreadWorld::Address ThreadCommunicator::address_of(int from, int to, int tag) const {
  return {group_, members_[static_cast<std::size_t>(from)], members_[static_cast<std::size_t>(to)], tag};
}

void ThreadCommunicator::require_peer(const char* operation, int peer, int tag) const {
  STAGECOACH_CHECK(peer >= 0 && peer < size() && peer != rank_ && tag >= 0,
                   "{}: rank {} of a group of {} and tag {} (another rank and a tag from 0 are needed)",
                   doing(operation, ""), peer, size(), tag);
}

Tensor ThreadCommunicator::here(const Tensor& tensor) const {
  if (tensor.device() == device_) {
    return tensor;
  }
  const bool both_cpu = tensor.device().type == DeviceType::cpu && device_.type == DeviceType::cpu;
  return both_cpu ? tensor.seen_from(device_) : tensor.to(device_);
}

PendingSend ThreadCommunicator::send_async(const Tensor& tensor, int to, int tag) {
  require_peer("send", to, tag);
  STAGECOACH_CHECK(tensor.device() == device_, "{}: {} is not on this rank's device {}", doing("send", ""),
                   describe(tensor), to_string(device_));
  const double arrival = clock_->now() + clock_->link().seconds(static_cast<double>(tensor.bytes()));
  const ThreadWorld::Address address = address_of(rank_, to, tag);
  const auto message = world_->leave(address, tensor.detach(), arrival);
  const std::string details = fmt::format(" to rank {}, tag {}", members_[static_cast<std::size_t>(to)], tag);
  const auto wait = [this, address, message, words = doing("send", details)] {
    Waiting waiting(*clock_);
    waiting.until(world_->wait_taken(address, *message, patience_, [&] { return words; }));
  };
  return {wait, [this, message] { return world_->is_taken(*message); }};
}

PendingReceive ThreadCommunicator::receive_async(const Shape& shape, DType dtype, int from, int tag) {
  require_peer("receive", from, tag);
  const std::string details = fmt::format(" from rank {}, tag {}", members_[static_cast<std::size_t>(from)], tag);
  return PendingReceive([this, shape, dtype, from, tag, words = doing("receive", details)] {
    const ThreadWorld::Message message = wait_for(from, tag, words);
    const Tensor& tensor = message.tensor;
    if (tensor.shape() != shape || tensor.dtype() != dtype) {
      throw CommError(fmt::format("{}: {} was expected, {} came", words, type_of(shape, dtype),
                                  type_of(tensor.shape(), tensor.dtype())));
    }
    if (device_.type == DeviceType::cuda) {
      message.ready.wait({device_, Stream::kCompute});
    }
    return here(tensor);
  });
}

ThreadWorld::Message ThreadCommunicator::wait_for(int from, int tag, const std::string& words) {
  const Span span("receive", "wait");
  const double now = clock_->now();
  Waiting waiting(*clock_);
  ThreadWorld::Message message = world_->take(address_of(from, rank_, tag), now, patience_, [&] { return words; });
  waiting.until(message.arrival);
  return message;
}

void ThreadCommunicator::send_number(double number, int to, int tag) {
  require_peer("send_number", to, tag);
  const double arrival = clock_->now() + clock_->link().seconds(sizeof(number));
  world_->leave(address_of(rank_, to, tag), Tensor::from(std::vector{number}, {1}), arrival);
}

double ThreadCommunicator::receive_number(int from, int tag) {
  require_peer("receive_number", from, tag);
  const std::string details = fmt::format(" from rank {}, tag {}", members_[static_cast<std::size_t>(from)], tag);
  const std::string words = doing("receive_number", details);
  const Tensor tensor = wait_for(from, tag, words).tensor;
  if (tensor.shape() != Shape{1} || tensor.dtype() != DType::float64) {
    throw CommError(fmt::format("{}: a number was expected, {} came", words, type_of(tensor.shape(), tensor.dtype())));
  }
  return tensor.to_vector<double>()[0];
}

template <class T>
std::vector<T> ThreadCommunicator::meet(const char* operation, const T& mine, double seconds) {
  struct Brought {
    std::string operation;
    T mine;
    double time;
  };
  const std::string meeting = fmt::format("{}/{}", group_, meetings_++);
  const Span span(operation, "wait");
  const double now = clock_->now();
  Waiting waiting(*clock_);
  const auto brought = world_->meet(meeting, rank_, members_, Brought{operation, mine, now}, patience_,
                                    [&] { return doing(operation, ""); });
  std::vector<T> all;
  for (int r = 0; r < size(); ++r) {
    const auto* theirs = std::any_cast<Brought>(&brought[static_cast<std::size_t>(r)]);
    if (theirs == nullptr || theirs->operation != operation) {
      throw CommError(
          fmt::format("{}: rank {} calls another operation at this point; all ranks of a group call the same "
                      "ones in the same order",
                      doing(operation, ""), members_[static_cast<std::size_t>(r)]));
    }
    waiting.until(theirs->time + seconds);
    all.push_back(theirs->mine);
  }
  return all;
}

std::vector<Tensor> ThreadCommunicator::meet_with(const char* operation, const Tensor& tensor, double seconds) {
  STAGECOACH_CHECK(tensor.device() == device_, "{}: {} is not on this rank's device {}", doing(operation, ""),
                   describe(tensor), to_string(device_));
  struct Brought {
    Tensor tensor;
    Event ready;
  };
  Event ready;
  ready.record({device_, Stream::kCompute});
  std::vector<Tensor> tensors;
  for (const Brought& brought : meet(operation, Brought{tensor.detach(), ready}, seconds)) {
    const int r = static_cast<int>(tensors.size());
    if (brought.tensor.shape() != tensor.shape() || brought.tensor.dtype() != tensor.dtype()) {
      throw CommError(
          fmt::format("{}: {} here, {} on rank {}", doing(operation, ""), type_of(tensor.shape(), tensor.dtype()),
                      type_of(brought.tensor.shape(), brought.tensor.dtype()), members_[static_cast<std::size_t>(r)]));
    }
    if (device_.type == DeviceType::cuda) {
      brought.ready.wait({device_, Stream::kCompute});
    }
    tensors.push_back(brought.tensor);
  }
  return tensors;
}

Tensor ThreadCommunicator::sum_of(const std::vector<Tensor>& tensors, std::int64_t start, std::int64_t length) const {
  const bool halves = tensors[0].dtype() == DType::float16;
  const auto part = [&](const Tensor& tensor) {
    const Tensor theirs = here(tensor.alias({length}, tensor.offset() + start));
    return halves ? converted(theirs, DType::float32) : theirs;
  };
  Tensor sum = halves ? part(tensors[0]) : part(tensors[0]).clone();
  for (std::size_t r = 1; r < tensors.size(); ++r) {
    kernels(device_).add_scaled(part(tensors[r]), 1, sum);
  }
  return halves ? converted(sum, DType::float16) : sum;
}

void ThreadCommunicator::all_reduce(Tensor& tensor) {
  // Each rank sums its part of the elements over all ranks; then all gather the parts. So each element is read `size`
  // times in all, and not `size` times by every rank.
  const std::vector<Tensor> tensors =
      meet_with("all_reduce", tensor, ring_all_reduce_seconds(clock_->link(), size(), bytes_of(tensor)));
  const std::int64_t count = tensor.numel();
  const std::int64_t start = part_start(count, rank_, size());
  const Tensor mine = sum_of(tensors, start, part_start(count, rank_ + 1, size()) - start);
  synchronize({device_, Stream::kCompute});
  const auto parts = meet("all_reduce, gathering", mine);
  // By now every rank has read what it needed of this one's tensor.
  for (int r = 0; r < size(); ++r) {
    const Tensor& part = parts[static_cast<std::size_t>(r)];
    Tensor into = tensor.alias({part.numel()}, tensor.offset() + part_start(count, r, size()));
    into.copy_from(here(part));
  }
}

void ThreadCommunicator::reduce(Tensor& tensor, int root) {
  STAGECOACH_CHECK(root >= 0 && root < size(), "{}: root {} of a group of {}", doing("reduce", ""), root, size());
  const auto tensors = meet_with("reduce", tensor, root_reduce_seconds(clock_->link(), size(), bytes_of(tensor)));
  if (rank_ == root) {
    tensor.copy_from(sum_of(tensors, 0, tensor.numel()).reshape(tensor.shape()));
  }
  synchronize({device_, Stream::kCompute});
  meet("reduce, ending", root);  // the others may change their tensors when the root has read them
}

void ThreadCommunicator::broadcast(Tensor& tensor, int root) {
  STAGECOACH_CHECK(root >= 0 && root < size(), "{}: root {} of a group of {}", doing("broadcast", ""), root, size());
  const auto tensors = meet_with("broadcast", tensor, tree_broadcast_seconds(clock_->link(), size(), bytes_of(tensor)));
  if (rank_ != root) {
    tensor.copy_from(here(tensors[static_cast<std::size_t>(root)]));
  }
  synchronize({device_, Stream::kCompute});
  meet("broadcast, ending", root);  // the root may change its tensor when all have read it
}

std::vector<Tensor> ThreadCommunicator::all_gather(const Tensor& tensor) {
  std::vector<Tensor> gathered;
  const double seconds = ring_all_gather_seconds(clock_->link(), size(), bytes_of(tensor));
  for (const Tensor& theirs : meet_with("all_gather", tensor, seconds)) {
    gathered.push_back(here(theirs).clone());
  }
  synchronize({device_, Stream::kCompute});
  meet("all_gather, ending", 0);
  return gathered;
}

Tensor ThreadCommunicator::reduce_scatter(const Tensor& tensor) {
  STAGECOACH_CHECK(tensor.dims() > 0 && tensor.size(0) % size() == 0, "{}: {} cannot be dealt to {} ranks",
                   doing("reduce_scatter", ""), describe(tensor), size());
  const auto tensors =
      meet_with("reduce_scatter", tensor, ring_reduce_scatter_seconds(clock_->link(), size(), bytes_of(tensor)));
  const std::int64_t length = tensor.numel() / size();
  const Tensor sum = sum_of(tensors, rank_ * length, length);
  synchronize({device_, Stream::kCompute});
  meet("reduce_scatter, ending", 0);
  return sum.reshape(tensor.shape().with(0, tensor.size(0) / size()));
}

void ThreadCommunicator::barrier() {
  synchronize({device_, Stream::kCompute});
  meet("barrier", 0, tree_broadcast_seconds(clock_->link(), size(), 0));
}

std::unique_ptr<Communicator> ThreadCommunicator::split(int colour, int key) {
  struct Choice {
    int colour;
    int key;
    int rank;
  };
  auto choices = meet("split", Choice{colour, key, rank_});
  std::erase_if(choices, [&](const Choice& choice) { return choice.colour != colour; });
  std::sort(choices.begin(), choices.end(),
            [](const Choice& a, const Choice& b) { return std::pair(a.key, a.rank) < std::pair(b.key, b.rank); });
  std::vector<int> members;
  int rank = 0;
  for (const Choice& choice : choices) {
    if (choice.rank == rank_) {
      rank = static_cast<int>(members.size());
    }
    members.push_back(members_[static_cast<std::size_t>(choice.rank)]);
  }
  std::string group = fmt::format("{}.{}:{}", group_, splits_++, colour);
  return std::make_unique<ThreadCommunicator>(world_, std::move(group), rank, std::move(members), device_, clock_,
                                              patience_.waits);
}

std::unique_ptr<Communicator> ThreadCommunicator::duplicate() {
  // It sleeps while it waits: it shares the core of the rank's own thread, which has work to do.
  return std::make_unique<ThreadCommunicator>(world_, fmt::format("{}+{}", group_, duplicates_++), rank_, members_,
                                              device_, clock_->another(), ThreadWorld::Waits::sleeping);
}

void ThreadCommunicator::abandon() {
  abandoned_.request_stop();
  world_->call(members_[static_cast<std::size_t>(rank_)]);
}

}  // namespace stagecoach
