#include "parallel/comm/thread/thread_communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/asynchronous.h"
#include "core/stream.h"
#include "core/transfer.h"
#include "core/uncounted_memory.h"
#include "parallel/comm/ordered_sum.h"

namespace stagecoach {
namespace {

/// Returns `tensor`, which another rank computed, on `device`; numbers of a plan stay on the host.
Tensor on_device(const Tensor& tensor, Device device) {
  if (device.type == DeviceType::meta && tensor.device().type != DeviceType::meta) {
    return tensor;
  }
  return tensor.device() != device && shares_memory(tensor.device(), device) ? tensor.seen_from(device)
                                                                             : tensor.to(device);
}

}  // namespace

class ThreadCommunicator::Send final : public Outgoing {
 public:
  Send(const ThreadCommunicator& comm, std::shared_ptr<ThreadWorld::Sent> sent) : comm_(comm), sent_(std::move(sent)) {}
  double wait(const ErrorContext& context) override {
    const double completed_at =
        comm_.world_->wait_completed(comm_.member(comm_.rank()), *sent_, comm_.wait_policy(), context);
    if (sent_->copied.recorded()) {
      sent_->copied.wait({comm_.device(), Stream::kCompute});  // later work may write to the tensor
    }
    return completed_at;
  }
  std::optional<double> completed_at() override {
    return comm_.world_->is_completed(*sent_) ? std::optional(sent_->completed_at) : std::nullopt;
  }

 private:
  const ThreadCommunicator& comm_;
  std::shared_ptr<ThreadWorld::Sent> sent_;
};

class ThreadCommunicator::Receive final : public Incoming {
 public:
  Receive(const ThreadCommunicator& comm, std::shared_ptr<ThreadWorld::Posted> posted, const Shape& shape, DType dtype,
          Device device)
      : comm_(comm), world_(comm.world_), posted_(std::move(posted)), shape_(shape), dtype_(dtype), device_(device) {}
  ~Receive() override { world_->cancel(posted_); }

  double wait(const ErrorContext& context) override {
    world_->wait_matched(*posted_, comm_.wait_policy(), context);
    return posted_->arrival;
  }
  /// Returns the sender's own tensor, or a copy.
  Tensor take(const ErrorContext& context) override {
    posted_->buffer = {};
    const Tensor tensor = std::exchange(posted_->tensor, {});
    if (tensor.shape() != shape_ || tensor.dtype() != dtype_) {
      throw unexpected(context(), type_of(shape_, dtype_), type_of(tensor));
    }
    if (device_.type == DeviceType::cuda) {
      posted_->ready.wait({device_, Stream::kCompute});
    }
    return on_device(tensor, device_);
  }

 private:
  const ThreadCommunicator& comm_;
  std::shared_ptr<ThreadWorld> world_;
  std::shared_ptr<ThreadWorld::Posted> posted_;
  Shape shape_;
  DType dtype_;
  Device device_;
};

std::shared_ptr<GroupCommunicator::Outgoing> ThreadCommunicator::start_send(const Tensor& tensor, int to, int tag,
                                                                            const ErrorContext& /*context*/) {
  return std::make_shared<Send>(*this, world_->send(address_of(rank(), to, tag), tensor, clock().now(), link_to(to)));
}

std::shared_ptr<GroupCommunicator::Incoming> ThreadCommunicator::post_receive(const Shape& shape, DType dtype,
                                                                              Device device, int from, int tag,
                                                                              const ErrorContext& /*context*/) {
  const bool is_copied = device.type == DeviceType::cuda && !shares_memory(world_->device_of(member(from)), device);
  const Tensor buffer = is_copied ? Tensor::empty(shape, dtype, device) : Tensor{};
  return std::make_shared<Receive>(
      *this, world_->post(address_of(from, rank(), tag), buffer, clock().now(), link_to(from)), shape, dtype, device);
}

std::optional<double> ThreadCommunicator::poll_number(int from, int tag, const ErrorContext& /*context*/) {
  const auto posted = world_->post(address_of(from, rank(), tag), {}, clock().now(), link_to(from));
  world_->cancel(posted);  // has no effect if it was matched, and a receive that was withdrawn is matched no more
  return posted->matched ? std::optional(posted->tensor.item()) : std::nullopt;
}

template <class T>
std::vector<T> ThreadCommunicator::rendezvous(const std::string& operation, const T& mine) {
  struct Contribution {
    std::string operation;
    T value;
  };
  const std::string name = fmt::format("{}/{}", group().name, rendezvous_count_++);
  const auto contributions = world_->rendezvous(name, rank(), group().members, Contribution{operation, mine},
                                                wait_policy(), [&] { return error_context(operation); });
  std::vector<T> values;
  for (int r = 0; r < size(); ++r) {
    const auto* theirs = std::any_cast<Contribution>(&contributions[static_cast<std::size_t>(r)]);
    if (theirs == nullptr || theirs->operation != operation) {
      throw other_operation(operation, r, theirs == nullptr ? "another operation" : theirs->operation);
    }
    values.push_back(theirs->value);
  }
  return values;
}

template <class T>
std::vector<T> ThreadCommunicator::wait_for_all(const std::string& operation, const T& mine) {
  const Waiting waiting(clock());
  return rendezvous(operation, mine);
}

double ThreadCommunicator::latest_time(const char* operation, double mine) {
  const std::vector<double> times = rendezvous(operation, mine);
  return *std::max_element(times.begin(), times.end());
}

std::vector<ThreadCommunicator::Shared> ThreadCommunicator::shared_by_all(const char* operation, Shared mine) {
  // Another rank may keep what it gets for longer than this one keeps its tensor, which then must not count.
  mine.tensor = UncountedMemory::is_active() ? mine.tensor.detach().clone() : mine.tensor.detach();
  mine.ready.record({device(), Stream::kCompute});  // of the clone too
  const std::vector<Shared> all = wait_for_all(operation, mine);
  if (device().type == DeviceType::cuda) {
    std::for_each(all.begin(), all.end(), [&](const Shared& shared) {
      shared.ready.wait({device(), Stream::kCompute});
    });
  }
  return all;
}

std::vector<Tensor> ThreadCommunicator::tensors_of_all(const char* operation, const Tensor& tensor) {
  std::vector<Tensor> tensors;
  for (const Shared& shared : shared_by_all(operation, {tensor})) {
    const int r = static_cast<int>(tensors.size());
    if (shared.tensor.shape() != tensor.shape() || shared.tensor.dtype() != tensor.dtype()) {
      throw other_type(operation, tensor, r, type_of(shared.tensor));
    }
    tensors.push_back(shared.tensor);
  }
  return tensors;
}

void ThreadCommunicator::require_matching_rows(const char* operation, const std::vector<Shared>& all) const {
  for (std::size_t from = 0; from < all.size(); ++from) {
    for (std::size_t to = 0; to < all.size(); ++to) {
      const Shape sent = all[from].tensor.shape().with(0, all[from].send_rows[to]);
      const Shape expected = all[to].tensor.shape().with(0, all[to].receive_rows[from]);
      if (sent != expected || all[from].tensor.dtype() != all[to].tensor.dtype()) {
        throw other_rows(operation, static_cast<int>(from), type_of(sent, all[from].tensor.dtype()),
                         static_cast<int>(to), type_of(expected, all[to].tensor.dtype()));
      }
    }
  }
}

void ThreadCommunicator::end(const std::string& operation) {
  synchronize({device(), Stream::kCompute});
  wait_for_all(operation, 0);
}

Tensor ThreadCommunicator::sum_of(const std::vector<Tensor>& tensors, std::int64_t start, std::int64_t length) const {
  std::vector<Tensor> parts(tensors.size());
  std::transform(tensors.begin(), tensors.end(), parts.begin(), [&](const Tensor& tensor) {
    return on_device(tensor.alias({length}, tensor.offset() + start), device());
  });
  return ordered_sum(parts);
}

void ThreadCommunicator::do_all_reduce(Tensor& tensor) {
  // Each rank sums its part of the elements over all ranks; then all ranks gather the parts. So each element is read
  // `size` times in all, instead of `size` times by every rank.
  const std::vector<Tensor> tensors = tensors_of_all("all_reduce", tensor);
  const std::int64_t count = tensor.numel();
  const std::int64_t start = part_start(count, rank(), size());
  const Tensor mine = sum_of(tensors, start, part_start(count, rank() + 1, size()) - start);
  synchronize({device(), Stream::kCompute});
  const auto parts = wait_for_all("all_reduce, gathering", mine);
  // By now every rank has read the elements that it needs from this rank's tensor.
  for (int r = 0; r < size(); ++r) {
    const Tensor& part = parts[static_cast<std::size_t>(r)];
    Tensor into = tensor.alias({part.numel()}, tensor.offset() + part_start(count, r, size()));
    into.copy_from(on_device(part, device()));
  }
}

void ThreadCommunicator::do_reduce(Tensor& tensor, int root) {
  const auto tensors = tensors_of_all("reduce", tensor);
  if (rank() == root) {
    tensor.copy_from(sum_of(tensors, 0, tensor.numel()).reshape(tensor.shape()));
  }
  end("reduce, ending");  // after this the others may change their tensors
}

void ThreadCommunicator::do_broadcast(Tensor& tensor, int root) {
  const auto tensors = tensors_of_all("broadcast", tensor);
  if (rank() != root) {
    tensor.copy_from(on_device(tensors[static_cast<std::size_t>(root)], device()));
  }
  end("broadcast, ending");  // after this the root may change its tensor
}

std::vector<Tensor> ThreadCommunicator::do_all_gather(const char* operation, const Tensor& tensor) {
  std::vector<Tensor> gathered;
  for (const Tensor& theirs : tensors_of_all(operation, tensor)) {
    gathered.push_back(on_device(theirs, device()).clone());
  }
  end(fmt::format("{}, ending", operation));
  return gathered;
}

void ThreadCommunicator::do_all_gather_into(Tensor& whole, const Tensor& part) {
  // Where calls are queued, other ranks must not read memory to which this rank writes the other parts.
  const bool is_copied = is_asynchronous(device()) && part.storage() == whole.storage();
  const auto parts = tensors_of_all("all_gather_into", is_copied ? part.clone() : part);
  for (int r = 0; r < size(); ++r) {
    if (r != rank()) {
      part_of(whole, r).copy_from(on_device(parts[static_cast<std::size_t>(r)], device()));
    }
  }
  end("all_gather_into, ending");
}

Tensor ThreadCommunicator::do_reduce_scatter(const Tensor& tensor) {
  auto tensors = tensors_of_all("reduce_scatter", tensor);
  const std::int64_t length = tensor.numel() / size();
  const Tensor sum = sum_of(tensors, rank() * length, length);
  tensors.clear();  // after the end, their memory is their owners' alone
  end("reduce_scatter, ending");
  return sum.reshape(tensor.shape().with(0, tensor.size(0) / size()));
}

Tensor ThreadCommunicator::do_all_to_all(const Tensor& rows, const RowCounts& send_rows,
                                         const RowCounts& receive_rows) {
  std::vector<Shared> all = shared_by_all("all_to_all", {rows, send_rows, receive_rows});
  require_matching_rows("all_to_all", all);
  const Tensor received = received_rows(rows, receive_rows);
  std::vector<Tensor> parts = parts_of(received, receive_rows);
  for (std::size_t r = 0; r < all.size(); ++r) {
    const std::vector<Tensor> theirs = parts_of(all[r].tensor, all[r].send_rows);
    parts[r].copy_from(on_device(theirs[static_cast<std::size_t>(rank())], device()));
  }
  all.clear();  // after the end, their memory is their owners' alone
  end("all_to_all, ending");
  return received;
}

std::unique_ptr<Communicator> ThreadCommunicator::make_part(Group part) {
  return std::make_unique<ThreadCommunicator>(world_, std::move(part), wait_policy().mode, wait_policy().may_spin);
}

std::unique_ptr<Communicator> ThreadCommunicator::make_duplicate(Group copy) {
  constexpr bool kMaySpin = false;
  return std::make_unique<ThreadCommunicator>(world_, std::move(copy), wait_policy().mode, kMaySpin);
}

}  // namespace stagecoach
