#include "parallel/rpc/message.h"

#include <cstring>
#include <span>
#include <type_traits>

#include "core/base/error.h"

namespace stagecoach::rpc {
namespace {

enum class Content : std::int32_t { nothing, error, in_bytes, follows };

class Writer {
 public:
  Packed packed;

  void bytes(const void* data, std::size_t count) {
    const auto* begin = static_cast<const std::uint8_t*>(data);
    packed.bytes.insert(packed.bytes.end(), begin, begin + count);
  }
  template <class T>
  void put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes(&value, sizeof(value));
  }
  template <class Sequence>
  void put_all(const Sequence& values) {
    put(static_cast<std::int64_t>(values.size()));
    bytes(values.data(), values.size() * sizeof(values[0]));
  }
  void put(const Value& value) {
    const Tensor& tensor = value.tensor;
    if (!value.error.empty()) {
      put(Content::error);
      put_all(value.error);
    } else if (!tensor.defined()) {
      put(Content::nothing);
    } else {
      const bool is_short = tensor.bytes() <= kInlineBytes && tensor.device().type == DeviceType::cpu;
      put(is_short ? Content::in_bytes : Content::follows);
      put(tensor.dtype());
      put_all(std::vector<std::int64_t>(tensor.shape().begin(), tensor.shape().end()));
      if (is_short) {
        bytes(tensor.raw_data(), tensor.bytes());
      } else {
        packed.tensors.push_back(tensor);
      }
    }
  }
  void put(const Command& command) {
    put(command.task);
    put(command.result);
    put(command.of);
    put(command.context);
    put(command.peer);
    put(command.needs_input_grad);
    put(command.is_on);
    put_all(command.name);
    put_all(command.arguments);
    put(command.value);
  }
};

class Reader {
 public:
  explicit Reader(const Unpacker& unpacker) : unpacker_(unpacker), rest_(unpacker.bytes) {}

  bool is_done() const { return rest_.empty(); }
  void bytes(void* data, std::size_t count) {
    STAGECOACH_CHECK(count <= rest_.size(), "remote call: expected {} more bytes of a message, got {}", count,
                     rest_.size());
    if (count > 0) {
      std::memcpy(data, rest_.data(), count);
    }
    rest_ = rest_.subspan(count);
  }
  template <class T>
  T take() {
    T value{};
    bytes(&value, sizeof(value));
    return value;
  }
  template <class Sequence>
  Sequence take_all() {
    Sequence values;
    values.resize(static_cast<std::size_t>(take<std::int64_t>()));
    bytes(values.data(), values.size() * sizeof(values[0]));
    return values;
  }
  Value value() {
    const auto content = take<Content>();
    if (content == Content::nothing) {
      return {};
    }
    if (content == Content::error) {
      return {.error = take_all<std::string>()};
    }
    const auto dtype = take<DType>();
    const auto extents = take_all<std::vector<std::int64_t>>();
    const Shape shape(extents.data(), static_cast<int>(extents.size()));
    if (content == Content::follows) {
      return {.tensor = unpacker_.receive(shape, dtype)};
    }
    Tensor tensor = Tensor::empty(shape, dtype, unpacker_.device);
    bytes(tensor.raw_mutable_data(), tensor.bytes());
    return {.tensor = tensor};
  }
  Command command() {
    Command command;
    command.task = take<Task>();
    command.result = take<Id>();
    command.of = take<Id>();
    command.context = take<Id>();
    command.peer = take<int>();
    command.needs_input_grad = take<bool>();
    command.is_on = take<bool>();
    command.name = take_all<std::string>();
    command.arguments = take_all<std::vector<Id>>();
    command.value = value();
    return command;
  }

 private:
  const Unpacker& unpacker_;
  std::span<const std::uint8_t> rest_;
};

}  // namespace

Packed pack(const std::vector<Command>& commands) {
  Writer writer;
  for (const Command& command : commands) {
    writer.put(command);
  }
  return writer.packed;
}

Packed pack(const Value& value) {
  Writer writer;
  writer.put(value);
  return writer.packed;
}

std::vector<Command> unpack_commands(const Unpacker& unpacker) {
  Reader reader(unpacker);
  std::vector<Command> commands;
  while (!reader.is_done()) {
    commands.push_back(reader.command());
  }
  return commands;
}

Value unpack_value(const Unpacker& unpacker) { return Reader(unpacker).value(); }

Tensor tensor_of(const std::string& text, Device device) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(text.data());
  return Tensor::from(std::span(bytes, text.size()), {static_cast<std::int64_t>(text.size())}, device);
}

std::string text_of(const Tensor& bytes) {
  const auto values = bytes.to_vector<std::uint8_t>();
  return {values.begin(), values.end()};
}

}  // namespace stagecoach::rpc
