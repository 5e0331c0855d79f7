#include "nn/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/base/atomic_file.h"
#include "core/base/error.h"
#include "core/base/memory_limits.h"
#include "core/base/throw_if.h"
#include "nn/foreign_files.h"
#include "nn/safetensors_header.h"

namespace stagecoach {
namespace {

using safetensors::Entry;
using safetensors::Header;

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kDigits = 8;
constexpr std::uint64_t kChunkBytes = 1 << 20;

/// The CRC-32 (as in zlib) of the bytes added so far. It detects any single changed bit.
class Checksum {
 public:
  void add(const void* bytes, std::size_t count) {
    value_ = ::crc32_z(value_, static_cast<const Bytef*>(bytes), count);
  }
  /// Adds the length field and the header, with zeros in place of the header's checksum.
  void add_header(std::string text) {
    const std::uint64_t length = text.size();
    text.replace(safetensors::text_before_checksum().size(), kDigits, kDigits, '0');
    add(&length, kLengthBytes);
    add(text.data(), text.size());
  }
  /// Adds `count` bytes whose own checksum is known.
  void append(std::uint32_t checksum, std::uint64_t count) {
    value_ = ::crc32_combine(value_, checksum, static_cast<z_off_t>(count));
  }
  std::uint32_t value() const { return static_cast<std::uint32_t>(value_); }
  std::string digits() const { return fmt::format("{:08x}", value_); }

 private:
  uLong value_ = ::crc32_z(0, nullptr, 0);
};

/// A file open for reading, of known size.
class InputFile {
 public:
  explicit InputFile(const std::string& path) {
    // Without O_NONBLOCK a named pipe would wait here for a writer.
    descriptor_ = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (descriptor_ < 0) {
      throw DataError(std::strerror(errno));
    }
    struct stat status {};
    if (::fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
      ::close(descriptor_);
      throw DataError("not a regular file");
    }
    bytes_left_ = static_cast<std::uint64_t>(status.st_size);
  }
  ~InputFile() { ::close(descriptor_); }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  std::uint64_t bytes_left() const { return bytes_left_; }

  /// Returns up to `count` bytes from the file's beginning, without moving on.
  std::string beginning(std::size_t count) const {
    std::string bytes(count, '\0');
    bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(::pread(descriptor_, bytes.data(), count, 0), 0)));
    return bytes;
  }

  void read(void* target, std::uint64_t count) {
    auto* bytes = static_cast<char*>(target);
    while (count > 0) {
      const ssize_t got = ::read(descriptor_, bytes, count);
      if (got < 0 && errno == EINTR) {
        continue;
      }
      if (got <= 0) {
        throw DataError(got < 0 ? std::strerror(errno) : "the file is truncated");
      }
      bytes += got;
      count -= static_cast<std::uint64_t>(got);
      bytes_left_ -= static_cast<std::uint64_t>(got);
    }
  }

 private:
  int descriptor_ = -1;
  std::uint64_t bytes_left_ = 0;
};

std::string read_header_text(InputFile& file) {
  throw_if<DataError>(file.bytes_left() < kLengthBytes,
                      "the file is truncated: expected at least 8 bytes for the length of the header, got {}",
                      file.bytes_left());
  std::uint64_t length = 0;
  file.read(&length, kLengthBytes);
  throw_if<DataError>(
      length > file.bytes_left() || length > safetensors::kMaxHeaderBytes,
      "the header is too long: expected at most {1} bytes, the rest of the file, and at most {2}, got {0}", length,
      file.bytes_left(), safetensors::kMaxHeaderBytes);
  std::string text(length, '\0');
  file.read(text.data(), length);
  return text;
}

/// Returns whether the file was written here. A damaged one cannot pass as another program's: that would take a change
/// to both keys.
bool is_ours(const Header& header, std::string_view text) {
  const auto producer = header.metadata.find(safetensors::kProducerKey);
  if (producer == header.metadata.end() && !header.metadata.contains(safetensors::kChecksumKey)) {
    return false;
  }
  const std::string before = safetensors::text_before_checksum();
  const std::string after = safetensors::text_after_checksum();
  if (text.size() < before.size() + kDigits || !text.starts_with(before) ||
      !text.substr(before.size() + kDigits).starts_with(after)) {
    throw DataError("the file is damaged: its Stagecoach metadata was changed");
  }
  return true;
}

void require_checksum(const Checksum& computed, const std::string& text) {
  const std::string stored = text.substr(safetensors::text_before_checksum().size(), kDigits);
  throw_if<DataError>(stored != computed.digits(), "the file is damaged: expected checksum {}, got {}", stored,
                      computed.digits());
}

/// Reads bytes that are not kept, only for the checksum.
void skip(InputFile& file, std::uint64_t count, Checksum& checksum) {
  std::vector<char> chunk(std::min<std::uint64_t>(count, kChunkBytes));
  while (count > 0) {
    const std::uint64_t part = std::min<std::uint64_t>(count, chunk.size());
    file.read(chunk.data(), part);
    checksum.add(chunk.data(), part);
    count -= part;
  }
}

void convert(const Entry& entry, const std::vector<char>& from, std::uint64_t elements, void* into) try {
  entry.type.convert(from.data(), elements, into);
} catch (const DataError& error) {
  throw DataError(fmt::format("tensor '{}' {}", entry.name, error.what()));
}

/// Reads the next tensor, in pieces if its elements are converted.
Tensor read_tensor(InputFile& file, const Entry& entry, Device device, Checksum& checksum) {
  Tensor tensor = Tensor::empty(entry.shape, *entry.type.dtype, device);
  auto* data = static_cast<char*>(tensor.raw_mutable_data());
  if (entry.type.convert == nullptr) {
    file.read(data, tensor.bytes());
    checksum.add(data, tensor.bytes());
    return tensor;
  }
  std::uint64_t elements = static_cast<std::uint64_t>(entry.shape.numel());
  const std::uint64_t size = static_cast<std::uint64_t>(entry.type.bits) / 8;
  std::vector<char> chunk(std::min(elements * size, kChunkBytes));
  while (elements > 0) {
    const std::uint64_t part = std::min(elements, chunk.size() / size);
    file.read(chunk.data(), part * size);
    checksum.add(chunk.data(), part * size);
    convert(entry, chunk, part, data);
    data += part * size_of(tensor.dtype());
    elements -= part;
  }
  return tensor;
}

TensorFile read_file(const std::string& path, const KeepTensor& keep, Device device) {
  InputFile file(path);
  const std::string foreign = safetensors::foreign_format(file.beginning(safetensors::kForeignBytes));
  throw_if<DataError>(!foreign.empty(), "{}", foreign);
  const std::string text = read_header_text(file);
  Header header = safetensors::from_text(text, file.bytes_left());
  const auto is_kept = [&](const Entry& entry) { return !keep || keep(entry.name); };
  std::uint64_t kept_bytes = 0;
  for (const Entry& entry : header.entries) {
    if (is_kept(entry)) {
      throw_if<DataError>(!entry.problem.empty(), "tensor '{}' {}", entry.name, entry.problem);
      kept_bytes += static_cast<std::uint64_t>(entry.shape.numel()) * size_of(*entry.type.dtype);
    }
  }
  require_memory_for("it", kept_bytes);
  const bool ours = is_ours(header, text);
  Checksum checksum;
  if (ours) {
    checksum.add_header(text);
  }
  TensorFile result;
  for (const Entry& entry : header.entries) {  // their sizes add up to the file's, which bounds the allocations
    if (entry.problem.empty()) {
      result.contents.push_back({entry.name, *entry.type.dtype, entry.shape});
    }
    if (!is_kept(entry)) {
      skip(file, entry.end - entry.begin, checksum);
      continue;
    }
    result.tensors.emplace_back(entry.name, read_tensor(file, entry, device, checksum));
  }
  if (ours) {
    require_checksum(checksum, text);
    header.metadata.erase(safetensors::kChecksumKey);
    header.metadata.erase(safetensors::kProducerKey);
  }
  result.metadata = std::move(header.metadata);
  return result;
}

/// Returns the tensor itself if the CPU can read it, otherwise a copy.
Tensor readable(const Tensor& tensor) { return tensor.device().type == DeviceType::cpu ? tensor : tensor.to(Device{}); }

}  // namespace

std::uint32_t crc32_of(const Tensor& tensor) {
  const Tensor here = readable(tensor);
  Checksum checksum;
  checksum.add(here.raw_data(), here.bytes());
  return checksum.value();
}

struct TensorFileWriter::State {
  AtomicFile file;
  std::vector<Announced> tensors;
  std::size_t added = 0;
};

TensorFileWriter::TensorFileWriter(const std::string& path, const std::vector<Announced>& tensors,
                                   const std::map<std::string, std::string>& metadata) {
  Header header;
  header.metadata = metadata;
  std::uint64_t offset = 0;
  for (const auto& [info, crc] : tensors) {
    const std::uint64_t end = offset + static_cast<std::uint64_t>(info.shape.numel()) * size_of(info.dtype);
    header.entries.push_back({info.name, safetensors::type_of(info.dtype), info.shape, offset, end});
    offset = end;
  }
  std::string text = safetensors::to_text(header);
  STAGECOACH_CHECK(text.size() <= safetensors::kMaxHeaderBytes,
                   "safetensors: the header is too large ({} bytes); use fewer tensors or less metadata", text.size());
  Checksum checksum;
  checksum.add_header(text);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    checksum.append(tensors[i].crc, header.entries[i].end - header.entries[i].begin);
  }
  text.replace(safetensors::text_before_checksum().size(), kDigits, checksum.digits());

  state_ = std::unique_ptr<State>(new State{AtomicFile(path), tensors});
  const std::uint64_t length = text.size();
  state_->file.write(&length, kLengthBytes);
  state_->file.write(text);
}

TensorFileWriter::~TensorFileWriter() = default;

void TensorFileWriter::add(const Tensor& tensor) {
  STAGECOACH_CHECK(state_->added < state_->tensors.size(), "safetensors: got {} after all {} announced tensors",
                   describe(tensor), state_->tensors.size());
  const auto& [info, crc] = state_->tensors[state_->added];
  const Tensor here = readable(tensor);
  STAGECOACH_CHECK(here.dtype() == info.dtype && here.shape() == info.shape && crc32_of(here) == crc,
                   "safetensors: '{}' is {}, expected the announced {}{} with checksum {:08x}", info.name,
                   describe(tensor), name_of(info.dtype), to_string(info.shape), crc);
  state_->file.write(here.raw_data(), here.bytes());
  ++state_->added;
}

void TensorFileWriter::commit() {
  STAGECOACH_CHECK(state_->added == state_->tensors.size(),
                   "safetensors: commit() after {} of {} tensors; add the others first", state_->added,
                   state_->tensors.size());
  state_->file.commit();
}

void save_tensors(const std::string& path, const TensorFile& file) {
  std::vector<TensorFileWriter::Announced> announced;
  for (const auto& [name, tensor] : file.tensors) {
    announced.push_back({{name, tensor.dtype(), tensor.shape()}, crc32_of(tensor)});
  }
  TensorFileWriter writer(path, announced, file.metadata);
  for (const auto& [name, tensor] : file.tensors) {
    writer.add(tensor);
  }
  writer.commit();
}

TensorFile load_tensors(const std::string& path, const KeepTensor& keep, Device device) {
  try {
    return read_file(path, keep, device);
  } catch (const DataError& error) {
    throw DataError(fmt::format("cannot read '{}': {}", path, error.what()));
  }
}

}  // namespace stagecoach
