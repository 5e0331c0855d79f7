#include "datasets/jpeg.h"

#include <array>
#include <csetjmp>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <vector>

// jerror.h needs size_t and FILE to be declared.
#include <jerror.h>
#include <jpeglib.h>

#include "core/base/error.h"
#include "datasets/exif.h"

namespace stagecoach {
namespace {

using Bytes = std::span<const std::uint8_t>;

/// A progressive file refines the whole image with each scan, and a scan may be as short as 20 bytes. Encoders write
/// about ten.
constexpr int kMaxScans = 100;

constexpr int kExifMarker = JPEG_APP0 + 1;
constexpr unsigned kMaxMarker = 0xffff;  // bytes: the format's limit

/// Returns whether a libjpeg warning does not affect pixels; all other warnings mean damaged data.
bool is_harmless(int warning) {
  return warning == JWRN_EXTRANEOUS_DATA || warning == JWRN_JFIF_MAJOR || warning == JWRN_ADOBE_XFORM ||
         warning == JWRN_NOT_SEQUENTIAL;
}

/// Wraps libjpeg's decoder. Its error handler must not return, and exceptions cannot pass through its stack frames, so
/// errors jump (longjmp) back to the member functions below. These have no local object that needs a destructor, and
/// return false.
class JpegDecoder {
 public:
  explicit JpegDecoder(Bytes bytes) : bytes_(bytes) {
    info_.err = jpeg_std_error(&errors_);
    errors_.error_exit = [](j_common_ptr info) { of(info).fail(); };
    errors_.emit_message = [](j_common_ptr info, int level) {
      if (level < 0 && !is_harmless(info->err->msg_code)) {
        of(info).fail();
      }
    };
    errors_.output_message = [](j_common_ptr) {};
    progress_.progress_monitor = [](j_common_ptr info) { of(info).check_scans(); };
    info_.client_data = this;
  }
  ~JpegDecoder() { jpeg_destroy_decompress(&info_); }
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  bool read_header() {
    if (setjmp(failed_) != 0) {
      return false;
    }
    jpeg_create_decompress(&info_);
    info_.progress = &progress_;
    jpeg_mem_src(&info_, bytes_.data(), bytes_.size());
    jpeg_save_markers(&info_, kExifMarker, kMaxMarker);
    jpeg_read_header(&info_, TRUE);
    return true;
  }

  /// Returns whether rows have four channels (CMYK) instead of three (RGB).
  bool is_cmyk() const { return info_.num_components == 4; }
  /// For CMYK, returns whether 255 means no ink, as in Adobe's files.
  bool is_inverted() const { return info_.saw_Adobe_marker == TRUE; }
  ImageSize size() const { return {.height = info_.image_height, .width = info_.image_width}; }
  int orientation() const {
    using namespace std::string_view_literals;
    constexpr std::string_view kName = "Exif\0\0"sv;  // other data has markers of this number too
    for (jpeg_saved_marker_ptr marker = info_.marker_list; marker != nullptr; marker = marker->next) {
      const Bytes data(marker->data, marker->data_length);
      if (data.size() > kName.size() && std::memcmp(data.data(), kName.data(), kName.size()) == 0) {
        return exif_orientation(data.subspan(kName.size()));
      }
    }
    return 1;
  }
  const char* reason() const { return reason_.data(); }

  bool start() {
    if (setjmp(failed_) != 0) {
      return false;
    }
    info_.out_color_space = is_cmyk() ? JCS_CMYK : JCS_RGB;
    info_.dct_method = JDCT_ISLOW;
    info_.do_block_smoothing = FALSE;  // it would only guess what is missing in a file
    jpeg_start_decompress(&info_);
    return true;
  }

  bool read_row(std::uint8_t* row) {
    if (setjmp(failed_) != 0) {
      return false;
    }
    jpeg_read_scanlines(&info_, &row, 1);
    return true;
  }

  /// Reads to the end of the file, so that truncation is detected.
  bool finish() {
    if (setjmp(failed_) != 0) {
      return false;
    }
    jpeg_finish_decompress(&info_);
    return true;
  }

 private:
  static JpegDecoder& of(j_common_ptr info) { return *static_cast<JpegDecoder*>(info->client_data); }

  [[noreturn]] void fail() {
    if (reason_[0] == '\0') {
      errors_.format_message(reinterpret_cast<j_common_ptr>(&info_), reason_.data());
    }
    std::longjmp(failed_, 1);
  }

  void check_scans() {
    if (info_.input_scan_number > kMaxScans) {
      std::snprintf(reason_.data(), reason_.size(), "expected at most %d scans, got more", kMaxScans);
      fail();
    }
  }

  Bytes bytes_;
  jpeg_decompress_struct info_{};
  jpeg_error_mgr errors_{};
  jpeg_progress_mgr progress_{};
  std::jmp_buf failed_{};
  std::array<char, JMSG_LENGTH_MAX> reason_{};
};

void require(bool done, const JpegDecoder& decoder) {
  if (!done) {
    throw DataError(decoder.reason());
  }
}

/// Converts the inks of a row, [width, 4], in place to RGB, [width, 3].
void inks_to_rgb(std::vector<std::uint8_t>& row, bool inverted) {
  const auto light = [&](std::size_t i) { return inverted ? row[i] : 255 - row[i]; };
  for (std::size_t x = 0; 4 * x < row.size(); ++x) {
    const int black = light(4 * x + 3);
    for (std::size_t c = 0; c < 3; ++c) {
      row[3 * x + c] = static_cast<std::uint8_t>((light(4 * x + c) * black + 127) / 255);
    }
  }
}

}  // namespace

bool is_jpeg(Bytes bytes) { return bytes.size() >= 3 && std::memcmp(bytes.data(), "\xff\xd8\xff", 3) == 0; }

ImageHeader read_jpeg_header(Bytes bytes) {
  JpegDecoder decoder(bytes);
  require(decoder.read_header(), decoder);
  return {.size = decoder.size(), .orientation = decoder.orientation()};
}

void decode_jpeg(Bytes bytes, ImageSize size, std::uint8_t* planes) {
  JpegDecoder decoder(bytes);
  require(decoder.read_header(), decoder);
  STAGECOACH_CHECK(decoder.size() == size, "decode_jpeg: expected {2} x {3} pixels, got {0} x {1}",
                   decoder.size().height, decoder.size().width, size.height, size.width);
  require(decoder.start(), decoder);
  std::vector<std::uint8_t> row(static_cast<std::size_t>(size.width) * (decoder.is_cmyk() ? 4 : 3));
  const std::int64_t count = size.height * size.width;
  for (std::int64_t y = 0; y < size.height; ++y, planes += size.width) {
    require(decoder.read_row(row.data()), decoder);
    if (decoder.is_cmyk()) {
      inks_to_rgb(row, decoder.is_inverted());
    }
    for (std::int64_t x = 0; x < size.width; ++x) {
      for (std::int64_t c = 0; c < 3; ++c) {
        planes[c * count + x] = row[static_cast<std::size_t>(3 * x + c)];
      }
    }
  }
  require(decoder.finish(), decoder);
}

}  // namespace stagecoach
