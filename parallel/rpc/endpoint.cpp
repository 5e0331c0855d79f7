#include "parallel/rpc/endpoint.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "core/allocator.h"
#include "core/base/error.h"

namespace stagecoach::rpc {
namespace {

constexpr std::int64_t kMaxBytes = std::int64_t{1} << 28;  // of a message without its tensors

void require_length(std::int64_t bytes) {
  STAGECOACH_CHECK(bytes >= 0 && bytes <= kMaxBytes,
                   "remote call: expected a message of at most {} bytes, got {}; send long values as tensors",
                   kMaxBytes, bytes);
}

}  // namespace

Tensor Report::to_tensor(Device device) const {
  std::vector<double> numbers{time, waited, peak_bytes};
  numbers.insert(numbers.end(), bytes_sent.begin(), bytes_sent.end());
  return Tensor::from(numbers, {static_cast<std::int64_t>(numbers.size())}, device);
}

Report Report::from(const Tensor& tensor) {
  const auto numbers = tensor.to_vector<double>();
  return {numbers.at(0), numbers.at(1), numbers.at(2), {numbers.begin() + 3, numbers.end()}};
}

Report Endpoint::report() {
  Allocator& memory = allocator(device());
  Report report{comm_.clock().now(), comm_.clock().waited(), static_cast<double>(memory.stats().peak_bytes),
                std::vector<double>(static_cast<std::size_t>(size()))};
  for (const auto& [rank, bytes] : comm_.bytes_sent()) {
    report.bytes_sent[static_cast<std::size_t>(rank)] = bytes;
  }
  memory.reset_peak();
  return report;
}

void Endpoint::send(const Tensor& tensor, int to, int tag) {
  while (!sends_.empty() && sends_.front().pending.completed()) {
    sends_.pop_front();
  }
  sends_.push_back({to, comm_.send_async(tensor, to, tag)});
}

// A receiver must know the size of a message, so the first one has a size of its own: it begins with the number of
// bytes, and those that do not fit come in a second one.
void Endpoint::send(const Packed& packed, int to, int tag) {
  heartbeat_.note_use();
  std::vector<std::uint8_t> first(kMessageBytes);
  const auto length = static_cast<std::int64_t>(packed.bytes.size());
  require_length(length);
  const std::size_t in_first = std::min(packed.bytes.size(), kMessageBytes - sizeof(length));
  std::memcpy(first.data(), &length, sizeof(length));
  std::memcpy(first.data() + sizeof(length), packed.bytes.data(), in_first);
  send(Tensor::from(first, {kMessageBytes}, device()), to, tag);
  if (in_first < packed.bytes.size()) {
    const std::vector<std::uint8_t> rest(packed.bytes.begin() + static_cast<std::ptrdiff_t>(in_first),
                                         packed.bytes.end());
    send(Tensor::from(rest, {static_cast<std::int64_t>(rest.size())}, device()), to, tag);
  }
  for (const Tensor& tensor : packed.tensors) {
    send(tensor, to, tag);
  }
}

Unpacker Endpoint::receive(int from, int tag) {
  const auto take = [this, from, tag](const Shape& shape, DType dtype) {
    const auto awaits = heartbeat_.await(from);
    return comm_.receive(shape, dtype, from, tag);
  };
  auto bytes = take({kMessageBytes}, DType::uint8).to_vector<std::uint8_t>();
  std::int64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof(length));
  require_length(length);
  bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(sizeof(length)));
  const auto in_first = static_cast<std::int64_t>(bytes.size());
  bytes.resize(static_cast<std::size_t>(std::min(length, in_first)));
  if (length > in_first) {
    const auto rest = take({length - in_first}, DType::uint8).to_vector<std::uint8_t>();
    bytes.insert(bytes.end(), rest.begin(), rest.end());
  }
  return {device(), std::move(bytes), take};
}

void Endpoint::end() {
  for (const Send& send : sends_) {
    const auto awaits = heartbeat_.await(send.to);
    send.pending.wait();
  }
  sends_.clear();
  heartbeat_.end();
}

}  // namespace stagecoach::rpc
