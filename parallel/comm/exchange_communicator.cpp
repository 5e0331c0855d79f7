#include "parallel/comm/exchange_communicator.h"

#include <algorithm>

#include "parallel/comm/ordered_sum.h"

namespace stagecoach {
namespace {

constexpr std::size_t kShort = 256 << 10;  // bytes that take less time than another exchange

/// Returns a receive buffer with the shape and type of a tensor.
Tensor buffer_for(const Tensor& tensor) { return Tensor::empty(tensor.shape(), tensor.dtype(), tensor.device()); }

/// Returns elements `start` … `end` - 1 as a one-dimensional alias.
Tensor row(const Tensor& tensor, std::int64_t start, std::int64_t end) {
  return tensor.alias({end - start}, tensor.offset() + start);
}

}  // namespace

template <class Make>
ExchangeCommunicator::ExchangeBuffers ExchangeCommunicator::for_each_peer(const Make& make) const {
  ExchangeBuffers buffers = nothing();
  for (int r = 0; r < size(); ++r) {
    buffers[static_cast<std::size_t>(r)] = r == rank() ? PeerBuffers{} : make(r);
  }
  return buffers;
}

void ExchangeCommunicator::require_same(const char* operation, const Tensor& like, const Tensor& in,
                                        const MessageHeader& theirs, int from) const {
  const MessageHeader expected = header_of(operation, like, in);
  if (theirs.operation != expected.operation) {
    throw other_operation(operation, from, theirs.operation.data());
  }
  if (!theirs.is_of_same_type(expected)) {
    throw like.defined() ? other_type(operation, like, from, theirs.type())
                         : other_rows(operation, from, theirs.type(), rank(), expected.type());
  }
}

double ExchangeCommunicator::latest_time(const char* operation, double mine) {
  const Tensor time = Tensor::from(std::vector{mine}, {1}, device());
  ExchangeBuffers buffers = for_each_peer([&](int) { return PeerBuffers{time, buffer_for(time)}; });
  exchange(operation, time, buffers);
  double latest = mine;
  for (const PeerBuffers& buffer : buffers) {
    latest = buffer.in.defined() ? std::max(latest, buffer.in.item()) : latest;
  }
  return latest;
}

void ExchangeCommunicator::sum_into(const Tensor& mine, const ExchangeBuffers& buffers) const {
  std::vector<Tensor> parts;
  parts.reserve(buffers.size());
  for (int r = 0; r < size(); ++r) {
    parts.push_back(r == rank() ? mine : buffers[static_cast<std::size_t>(r)].in);
  }
  sum_in_order(parts, static_cast<std::size_t>(rank()));
}

void ExchangeCommunicator::do_all_reduce(Tensor& tensor) {
  const Waiting waiting(clock());
  const bool native = group().reduce == ReduceKind::native && tensor.numel() > 0;
  if (size() == 1 || (native && sum_natively(tensor))) {
    return;
  }
  const std::size_t others = static_cast<std::size_t>(size()) - 1;
  if (others * tensor.bytes() <= kShort) {
    sum_whole(tensor);
  } else {
    sum_in_parts(tensor);
  }
}

/// Sums with one exchange: each rank receives the whole tensor of every other rank and adds them itself.
void ExchangeCommunicator::sum_whole(Tensor& tensor) {
  ExchangeBuffers buffers = for_each_peer([&](int r) { return PeerBuffers{tensor, short_sum_buffer(tensor, r)}; });
  exchange("all_reduce", tensor, buffers);
  sum_into(tensor, buffers);
}

/// Short sums are frequent, and allocating memory takes longer than adding, so receive buffers are kept.
Tensor ExchangeCommunicator::short_sum_buffer(const Tensor& tensor, int from) {
  short_sum_buffers_.resize(static_cast<std::size_t>(size()));
  Tensor& buffer = short_sum_buffers_[static_cast<std::size_t>(from)];
  if (!buffer.defined() || buffer.shape() != tensor.shape() || buffer.dtype() != tensor.dtype()) {
    buffer = buffer_for(tensor);
  }
  return buffer;
}

/// Sums in two steps: each rank sums its part over all ranks; then all ranks gather the parts. That takes two
/// exchanges, and about twice the tensor's bytes for any number of ranks.
void ExchangeCommunicator::sum_in_parts(Tensor& tensor) {
  const auto part_of = [&](int r) {
    return row(tensor, part_start(tensor.numel(), r, size()), part_start(tensor.numel(), r + 1, size()));
  };
  const Tensor mine = part_of(rank());
  ExchangeBuffers buffers = for_each_peer([&](int r) { return PeerBuffers{part_of(r), buffer_for(mine)}; });
  exchange("all_reduce", tensor, buffers);
  sum_into(mine, buffers);
  buffers = for_each_peer([&](int r) { return PeerBuffers{mine, part_of(r)}; });
  exchange("all_reduce, gathering", tensor, buffers);
}

void ExchangeCommunicator::do_reduce(Tensor& tensor, int root) {
  const Waiting waiting(clock());
  if (rank() != root) {
    ExchangeBuffers buffers = nothing();
    with(buffers, root).out = tensor;
    return exchange("reduce", tensor, buffers);
  }
  ExchangeBuffers buffers = for_each_peer([&](int) { return PeerBuffers{{}, buffer_for(tensor)}; });
  exchange("reduce", tensor, buffers);
  sum_into(tensor, buffers);
}

/// Broadcasts by a tree: in each round, the ranks that have the tensor pass it on.
void ExchangeCommunicator::do_broadcast(Tensor& tensor, int root) {
  const Waiting waiting(clock());
  const int relative_rank = (rank() - root + size()) % size();  // 0 for the root
  for (int have = 1; have < size(); have *= 2) {
    ExchangeBuffers buffers = nothing();
    if (relative_rank < have && relative_rank + have < size()) {
      with(buffers, (rank() + have) % size()).out = tensor;
    } else if (relative_rank >= have && relative_rank < 2 * have) {
      with(buffers, (rank() - have + size()) % size()).in = tensor;
    }
    exchange("broadcast", tensor, buffers);
  }
}

std::vector<Tensor> ExchangeCommunicator::do_all_gather(const char* operation, const Tensor& tensor) {
  const Waiting waiting(clock());
  ExchangeBuffers buffers = nothing();
  std::vector<Tensor> gathered;
  for (int r = 0; r < size(); ++r) {
    gathered.push_back(r == rank() ? tensor.clone() : buffer_for(tensor));
    with(buffers, r) = {tensor, gathered.back()};
  }
  exchange(operation, tensor, buffers);
  return gathered;
}

void ExchangeCommunicator::do_all_gather_into(Tensor& whole, const Tensor& part) {
  const Waiting waiting(clock());
  ExchangeBuffers buffers = for_each_peer([&](int r) { return PeerBuffers{part, part_of(whole, r)}; });
  exchange("all_gather_into", part, buffers);
}

Tensor ExchangeCommunicator::do_reduce_scatter(const Tensor& tensor) {
  const Waiting waiting(clock());
  const std::int64_t length = tensor.numel() / size();
  const auto part_of = [&](int r) { return row(tensor, r * length, (r + 1) * length); };
  const Tensor mine = part_of(rank()).clone();
  ExchangeBuffers buffers = for_each_peer([&](int r) { return PeerBuffers{part_of(r), buffer_for(mine)}; });
  exchange("reduce_scatter", tensor, buffers);
  sum_into(mine, buffers);
  return mine.reshape(tensor.shape().with(0, tensor.size(0) / size()));
}

Tensor ExchangeCommunicator::do_all_to_all(const Tensor& rows, const RowCounts& send_rows,
                                           const RowCounts& receive_rows) {
  const Waiting waiting(clock());
  const Tensor received = received_rows(rows, receive_rows);
  const std::vector<Tensor> out = parts_of(rows, send_rows);
  std::vector<Tensor> in = parts_of(received, receive_rows);
  const auto self = static_cast<std::size_t>(rank());
  in[self].copy_from(out[self]);
  ExchangeBuffers buffers = for_each_peer([&](int r) {
    const auto peer = static_cast<std::size_t>(r);
    return PeerBuffers{out[peer], in[peer]};
  });
  exchange("all_to_all", {}, buffers);
  return received;
}

/// A dissemination barrier: after each round, a rank knows of twice as many others.
void ExchangeCommunicator::do_barrier() {
  const Waiting waiting(clock());
  const Tensor word = Tensor::zeros({1}, DType::uint8, device());  // some transports skip empty tensors
  for (int heard = 1; heard < size(); heard *= 2) {
    ExchangeBuffers buffers = nothing();
    with(buffers, (rank() + heard) % size()).out = word;
    with(buffers, (rank() - heard + size()) % size()).in = buffer_for(word);
    exchange("barrier", word, buffers);
  }
}

}  // namespace stagecoach
