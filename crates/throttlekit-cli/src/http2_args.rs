//! Options of HTTP/2 connections.

use std::time::Duration;

use clap::value_parser;
use throttlekit_server::internals::listen::Limits;

/// Limits of HTTP/2 connections, of all listeners that serve it.
#[derive(clap::Args)]
#[command(next_help_heading = "HTTP/2")]
pub(crate) struct Http2Args {
    /// Limit the concurrent streams of a connection; each takes about 5 KB while its request waits
    #[arg(long, default_value_t = 100, value_name = "STREAMS", value_parser = value_parser!(u32).range(1..=10_000))]
    http2_streams_max: u32,
    /// Limit the headers of a request, as HTTP/2 counts their size; applies to HTTP/1 as well
    #[arg(long, default_value_t = 16_384, value_name = "BYTES")]
    #[arg(value_parser = value_parser!(u32).range(1_024..=1_048_576))]
    http2_header_bytes_max: u32,
    /// Set the flow-control window of a stream
    #[arg(long, default_value_t = 65_536, value_name = "BYTES")]
    #[arg(value_parser = value_parser!(u32).range(16_384..=16_777_216))]
    http2_stream_window: u32,
    /// Set the flow-control window of a connection
    #[arg(long, default_value_t = 1_048_576, value_name = "BYTES")]
    #[arg(value_parser = value_parser!(u32).range(65_535..=67_108_864))]
    http2_connection_window: u32,
    /// Ping a silent client at this interval, in seconds
    #[arg(long, default_value_t = 30, value_name = "SECONDS", value_parser = value_parser!(u64).range(1..=3_600))]
    http2_keepalive_s: u64,
    /// Close a connection whose client does not respond to a ping within this time, in seconds
    #[arg(long, default_value_t = 10, value_name = "SECONDS", value_parser = value_parser!(u64).range(1..=600))]
    http2_keepalive_timeout_s: u64,
    /// Close a connection after its client resets this many streams before they are accepted
    #[arg(long, default_value_t = 20, value_name = "STREAMS", value_parser = value_parser!(u32).range(1..=10_000))]
    http2_pending_resets_max: u32,
    /// Close a connection after this many streams are reset for errors of its client
    #[arg(long, default_value_t = 256, value_name = "STREAMS", value_parser = value_parser!(u32).range(1..=100_000))]
    http2_error_resets_max: u32,
    /// Close a connection whose client abandons this many requests within ten seconds, if they are the majority
    #[arg(long, default_value_t = 5_000, value_name = "REQUESTS")]
    #[arg(value_parser = value_parser!(u32).range(1..=1_000_000))]
    http2_abandoned_max: u32,
    /// Limit the size of a frame
    #[arg(long, default_value_t = 16_384, value_name = "BYTES")]
    #[arg(value_parser = value_parser!(u32).range(16_384..=16_777_215))]
    http2_frame_bytes_max: u32,
    /// Limit the send buffer of a stream
    #[arg(long, default_value_t = 65_536, value_name = "BYTES")]
    #[arg(value_parser = value_parser!(u32).range(1_024..=16_777_216))]
    http2_send_buffer_bytes: u32,
    /// Close a connection without a request after this time, in seconds; applies to HTTP/1 and RESP as well
    #[arg(long, default_value_t = 120, value_name = "SECONDS", value_parser = value_parser!(u64).range(1..=86_400))]
    http2_idle_s: u64,
    /// Close a connection gracefully at this age, plus or minus a tenth, in seconds; applies to HTTP/1 and RESP as well
    #[arg(long, default_value_t = 600, value_name = "SECONDS", value_parser = value_parser!(u64).range(1..=604_800))]
    http2_age_s: u64,
    /// Close a connection whose client reads none of a response for this time, in seconds; applies to HTTP/1 and RESP
    /// as well
    #[arg(long, default_value_t = 30, value_name = "SECONDS", value_parser = value_parser!(u64).range(1..=3_600))]
    http2_stall_s: u64,
}

impl Http2Args {
    /// Sets these limits.
    pub(crate) fn apply(&self, limits: &mut Limits) {
        limits.streams_max = self.http2_streams_max;
        limits.header_bytes_max = self.http2_header_bytes_max;
        limits.stream_window = self.http2_stream_window;
        limits.connection_window = self.http2_connection_window;
        limits.keepalive_every = Duration::from_secs(self.http2_keepalive_s);
        limits.keepalive_max = Duration::from_secs(self.http2_keepalive_timeout_s);
        limits.pending_resets_max = self.http2_pending_resets_max as usize;
        limits.error_resets_max = self.http2_error_resets_max as usize;
        limits.abandoned_max = self.http2_abandoned_max;
        limits.frame_bytes_max = self.http2_frame_bytes_max;
        limits.send_buffer_bytes = self.http2_send_buffer_bytes as usize;
        limits.idle_max = Duration::from_secs(self.http2_idle_s);
        limits.age_max = Duration::from_secs(self.http2_age_s);
        limits.stall_max = Duration::from_secs(self.http2_stall_s);
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Only {
        #[command(flatten)]
        http2: Http2Args,
    }

    fn limits(args: &[&str]) -> Option<Limits> {
        let only = Only::try_parse_from([&["serve"], args].concat()).ok()?;
        let mut limits = Limits::default();
        only.http2.apply(&mut limits);
        Some(limits)
    }

    #[test]
    fn defaults_are_those_of_the_server() {
        assert_eq!(limits(&[]), Some(Limits::default()));
    }

    #[test]
    fn each_option_sets_its_limit_and_values_out_of_range_are_rejected() {
        let set = |name: &str, value: &str| limits(&[&format!("--http2-{name}"), value]);
        assert_eq!(set("streams-max", "7").unwrap().streams_max, 7);
        assert_eq!(set("header-bytes-max", "2048").unwrap().header_bytes_max, 2_048);
        assert_eq!(set("stream-window", "16384").unwrap().stream_window, 16_384);
        assert_eq!(set("connection-window", "65535").unwrap().connection_window, 65_535);
        assert_eq!(set("keepalive-s", "1").unwrap().keepalive_every, Duration::from_secs(1));
        assert_eq!(set("keepalive-timeout-s", "2").unwrap().keepalive_max, Duration::from_secs(2));
        assert_eq!(set("pending-resets-max", "7").unwrap().pending_resets_max, 7);
        assert_eq!(set("error-resets-max", "8").unwrap().error_resets_max, 8);
        assert_eq!(set("abandoned-max", "9").unwrap().abandoned_max, 9);
        assert_eq!(set("frame-bytes-max", "16777215").unwrap().frame_bytes_max, 16_777_215);
        assert_eq!(set("send-buffer-bytes", "1024").unwrap().send_buffer_bytes, 1_024);
        assert_eq!(set("idle-s", "3").unwrap().idle_max, Duration::from_secs(3));
        assert_eq!(set("age-s", "4").unwrap().age_max, Duration::from_secs(4));
        assert_eq!(set("stall-s", "5").unwrap().stall_max, Duration::from_secs(5));
        for (name, value) in [
            ("streams-max", "0"),
            ("header-bytes-max", "10"),
            ("stream-window", "100"),
            ("connection-window", "4294967295"),
            ("keepalive-s", "0"),
            ("keepalive-timeout-s", "0"),
            ("pending-resets-max", "0"),
            ("error-resets-max", "0"),
            ("abandoned-max", "0"),
            ("frame-bytes-max", "16383"),
            ("frame-bytes-max", "16777216"),
            ("send-buffer-bytes", "1"),
            ("idle-s", "0"),
            ("age-s", "0"),
            ("stall-s", "0"),
        ] {
            assert_eq!(set(name, value), None, "{name} {value}");
        }
    }
}
